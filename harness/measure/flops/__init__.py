"""Multiply-accumulates of captioners, by tracing their modules."""
