"""Data sets: images, captions, vocabularies, and cached visual features.

The main entry points are `open_dataset`, `Dataset` and `Sample`; they import no torch.
"""

from harness.data.dataset import Dataset, Sample, open_dataset

__all__ = ["Dataset", "Sample", "open_dataset"]
