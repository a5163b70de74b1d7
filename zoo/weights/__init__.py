"""Weights that the authors released, under the zoo's names: one converter file an architecture."""

from zoo.weights.expansionnet import from_official, read_sizes
from zoo.weights.files import read_checkpoint, read_vocabulary

__all__ = ["from_official", "read_checkpoint", "read_sizes", "read_vocabulary"]
