"""Data sets, their pictures and words, and the visual features cut from them.

`open_dataset`, `Dataset` and `Sample` are the way in; they import no torch.
"""

from harness.data.dataset import Dataset, Sample
from harness.data.opening import open_dataset

__all__ = ["Dataset", "Sample", "open_dataset"]
