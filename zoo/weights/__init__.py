"""Weights that the authors released, under the zoo's names: one converter file an architecture."""

from zoo.weights.files import read_checkpoint, read_vocabulary
from zoo.weights.official import from_official, read_sizes

__all__ = ["from_official", "read_checkpoint", "read_sizes", "read_vocabulary"]
