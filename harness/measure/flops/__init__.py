"""Multiply-accumulates of captioners and backbones, counted on traces."""
