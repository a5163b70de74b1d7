"""Interface of region sources: raw regions of an image, and valid regions after checking."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

Numbers = np.ndarray[Any, np.dtype[np.floating[Any]]]
Size = tuple[int, int]  # width, height in pixels

MAX_BYTES = 1 << 28
"""Maximum size of one image's regions (256 MiB); more is refused as damaged or malicious."""


class BadRegions(Exception):  # noqa: N818 - it tells of the image, not of the failure
    """An image whose regions cannot be used; the message is the reason in a few words."""


@dataclass(frozen=True, slots=True)
class RawRegions:
    """K regions as their source has them, unchecked.

    features: (K, C), or None if they are to be pooled from a backbone's map; boxes: (K, 4) as x1, y1, x2, y2 in pixels,
    or None; size: of the image that the pixels refer to, if the source has it; scores: (K,) of the detector, if any.
    """

    features: Numbers | None = None
    boxes: Numbers | None = None
    size: Size | None = None
    scores: Numbers | None = None


@dataclass(frozen=True, slots=True)
class Regions:
    """K >= 1 valid regions: features (K, C) or still None, boxes (K, 4) in [0, 1] of the image or None.

    `whole`: the source has no box, and the whole image is the only region.
    """

    features: Numbers | None
    boxes: Numbers | None
    size: Size | None = None
    whole: bool = False

    @property
    def count(self) -> int:
        """K."""
        told = self.boxes if self.features is None else self.features
        return 0 if told is None else len(told)


class RegionSource(Protocol):
    """A source of regions by image id.

    Attributes:
        name: as shown in the signature.
        fingerprint: hex; changes with any of the source's files, cheap to compute.
        boxes_only: the features are to be pooled from a backbone's map.
    """

    name: str
    fingerprint: str
    boxes_only: bool

    def read(self, image_ids: Sequence[int]) -> Iterator[tuple[int, RawRegions | str]]:
        """Regions of the images, or their errors, in any order; missing images are left out.

        An id may be repeated with an error, which replaces its regions.
        """
        ...
