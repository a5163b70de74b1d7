"""Captioners of the transformers library's own interface: any image-to-text checkpoint with its processor."""
