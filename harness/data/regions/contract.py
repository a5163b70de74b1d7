"""What a source of regions tells of an image, and what is left of it after checking."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

Numbers = np.ndarray[Any, np.dtype[np.floating[Any]]]
Size = tuple[int, int]  # width, height in pixels

MAX_BYTES = 1 << 28
"""Bytes of one image's regions (256 MiB); more is damage or malice."""


class BadRegions(Exception):  # noqa: N818 - it tells of the image, not of the failure
    """An image whose regions cannot be used; the message says why in a few words."""


@dataclass(frozen=True, slots=True)
class RawRegions:
    """K regions as their source tells them, unchecked.

    features: (K, C), or None where a backbone's map is still to be cut; boxes: (K, 4) as x1, y1, x2, y2 in pixels, or
    None where there are none; size: of the image that the pixels are meant in, where the source says it; scores: (K,)
    of the detector, where it gave any.
    """

    features: Numbers | None = None
    boxes: Numbers | None = None
    size: Size | None = None
    scores: Numbers | None = None


@dataclass(frozen=True, slots=True)
class Regions:
    """K >= 1 sound regions: features (K, C) or None as yet, boxes (K, 4) in [0, 1] of the image or None.

    `whole` says that the source knew no box, and the whole image stands in as the one region.
    """

    features: Numbers | None
    boxes: Numbers | None
    size: Size | None = None
    whole: bool = False


class RegionSource(Protocol):
    """Files, or boxes, that tell regions by image id.

    Attributes:
        name: as the signature shows it.
        fingerprint: hex; changes with any of the source's files, cheap to compute.
        boxes_only: the features are still to be cut from a backbone's map.
    """

    name: str
    fingerprint: str
    boxes_only: bool

    def read(self, image_ids: Sequence[int]) -> Iterator[tuple[int, RawRegions | str]]:
        """Regions of the images, or what is wrong with them, in any order; what is missing does not come.

        An id may come again with a complaint: what came before is then void.
        """
        ...
