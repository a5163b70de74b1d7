"""Convert weights released by the authors to the zoo's names: one converter file per architecture."""

from zoo.weights.official import from_official, read_checkpoint, read_sizes, read_vocabulary

__all__ = ["from_official", "read_checkpoint", "read_sizes", "read_vocabulary"]
