"""Weights that the authors released, under the zoo's names: one converter file an architecture."""

from zoo.weights.expansionnet import from_official

__all__ = ["from_official"]
