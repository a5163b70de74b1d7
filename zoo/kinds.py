"""What models see of an image."""

from typing import Literal

VisualKind = Literal["grid", "regions", "regions+grid", "pooled", "pixels", "none"]
"""What a model sees of an image."""
GraphKind = Literal["none", "words", "labels"]
"""What numbers stand for in the scene graph that a model reads: words of its embedding, or labels of edges."""
