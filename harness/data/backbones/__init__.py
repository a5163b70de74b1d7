"""Frozen image encoders: the built-in filterbank and scenesnet, and timm models."""
