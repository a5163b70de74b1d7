"""Kinds of visual input."""

from typing import Literal

VisualKind = Literal["grid", "regions", "regions+grid", "pooled", "pixels", "none"]
"""The visual input of a model."""
GraphKind = Literal["none", "words", "labels"]
"""The scene graph that a model reads: its numbers are words of the embedding, or labels of edges."""
