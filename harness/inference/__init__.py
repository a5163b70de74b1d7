"""Captions and attention maps from a trained model."""
