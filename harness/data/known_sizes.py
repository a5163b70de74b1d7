"""The sizes of data sets, for plans before they are downloaded. Imports no torch."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KnownSize:
    """Images of the splits; `captions` of a training image in the mean, `restval` of `train` Karpathy keeps apart."""

    train: int
    val: int
    test: int
    captions: float = 5.0
    restval: int = 0


KNOWN_SIZES = {
    "scenes": KnownSize(1_500, 150, 1_600),
    "scenes-6k": KnownSize(6_000, 300, 1_600),
    "coco": KnownSize(113_287, 5_000, 5_000, 5.0028, restval=30_504),
    "flickr30k": KnownSize(29_000, 1_014, 1_000),
    "flickr8k": KnownSize(6_000, 1_000, 1_000),
}
"""The embedded data sets, whose tests are of both evaluated splits, and Karpathy's splits."""
