"""Frozen image encoders: the built-in filterbank, and timm models."""
