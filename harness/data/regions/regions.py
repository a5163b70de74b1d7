"""Region sources, and their regions checked and selected.

Boxes are converted to [0, 1] of the image. Boxes that exceed the image by at most one pixel are clipped, as rounding;
more is an error, since such boxes belong to an image of another size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from typing import Any

import numpy as np

from harness.data.dataset import Dataset
from harness.data.images import BadImage, image_size

Numbers = np.ndarray[Any, np.dtype[np.floating[Any]]]
Size = tuple[int, int]  # width, height in pixels

MAX_BYTES = 1 << 28
"""Maximum size of one image's regions (256 MiB); more is refused as damaged or malicious."""
ROUNDING = 1.0
"""Pixels by which a box may exceed its image."""
MIN_SCORE = 0.2
"""Minimum detector score at which `adaptive` keeps regions beyond the minimum number, as in bottom-up attention."""
NO_SIZE = "its boxes are in pixels, the annotations have no width and height, and its image file"
"""Begins the complaint about an image whose size nothing tells."""
_FIRST = 9  # number of images whose most common number of channels is required of all
_WHOLE = ((0.0, 0.0, 1.0, 1.0),)


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


class RegionSource:
    """A source of regions by image id, which implements `image`, or `read` itself.

    Attributes:
        name: as shown in the signature.
        fingerprint: hex; changes with any of the source's files, cheap to compute.
        boxes_only: the features are to be pooled from a backbone's map.
    """

    name: str
    fingerprint: str
    boxes_only: bool = False

    def image(self, image_id: int) -> RawRegions | None:
        """Regions of one image, None where the source has none; BadRegions where they cannot be used."""
        raise NotImplementedError

    def read(self, image_ids: Sequence[int]) -> Iterator[tuple[int, RawRegions | str]]:
        """Regions of the images, or their errors, in any order; missing images are left out.

        An id may be repeated with an error, which replaces its regions.
        """
        for image_id in image_ids:
            try:
                found = self.image(image_id)
            except BadRegions as bad:
                yield image_id, str(bad)
            else:
                if found is not None:
                    yield image_id, found


Limits = tuple[int, int]


def read_regions(
    source: RegionSource,
    dataset: Dataset,
    *,
    skip: Collection[int] = (),
    limits: Limits | None = None,
    as_listed: bool = False,
) -> Iterator[tuple[int, Regions | str]]:
    """Valid regions, or the error, of every image of a data set but those in `skip`; each at least once.

    An id is repeated only with an error, which replaces its regions.

    Args:
        limits: minimum and maximum number of regions kept: those of a score of 0.2 or more, best first, within these
            limits; without scores the maximum number, largest area first; without boxes the first ones. They stay in
            their source's order. None keeps all.
        as_listed: keep the first ones up to the maximum number, whatever their scores and areas.

    Raises:
        BenchError: the source itself cannot be read.
    """
    samples = {sample.image_id: sample for sample in dataset.samples if sample.image_id not in skip}

    def size_of(image_id: int) -> Size:
        if image_id in dataset.sizes:
            return dataset.sizes[image_id]
        try:
            return image_size(dataset.path(samples[image_id]))
        except BadImage as bad:
            raise BadRegions(f"{NO_SIZE} {bad.reason}") from bad

    missing = dict.fromkeys(samples)
    told = _widths_known(source.read(list(samples)))
    for image_id, raw, channels in told:
        missing.pop(image_id, None)
        found: Regions | str
        try:
            if isinstance(raw, str):
                found = raw
            else:
                found = _checked(raw, channels, partial(size_of, image_id))
                found = _kept(found, raw.scores, limits, as_listed)
        except BadRegions as bad:
            found = str(bad)
        if isinstance(found, str):
            file = f", {samples[image_id].file}" if samples[image_id].file else ""
            yield image_id, f"image {image_id}: {found} ({source.name}{file})"
        else:
            yield image_id, found
    for image_id in missing:
        yield image_id, f"image {image_id}: has no regions in {source.name}"


def _widths_known(
    told: Iterator[tuple[int, RawRegions | str]],
) -> Iterator[tuple[int, RawRegions | str, int | None]]:
    """Add the number of channels that all images must have: the most common of the first few."""
    first = list(islice(told, _FIRST))
    widths = Counter(
        raw.features.shape[-1] for _, raw in first if not isinstance(raw, str) and raw.features is not None
    )
    channels = widths.most_common(1)[0][0] if widths else None
    for image_id, raw in chain(first, told):
        yield image_id, raw, channels


def _checked(raw: RawRegions, channels: int | None, size_of: Callable[[], Size]) -> Regions:
    features = None if raw.features is None else _sound_features(raw.features, channels)
    if raw.boxes is None:
        return Regions(features, None)
    size = raw.size or size_of()
    if features is None and not len(raw.boxes):
        return Regions(None, np.array(_WHOLE, dtype=np.float32), size, whole=True)
    if features is not None and len(features) != len(raw.boxes):
        raise BadRegions(f"has {len(features)} regions but {len(raw.boxes)} boxes")
    return Regions(features, normalised(raw.boxes, size), size)


def _sound_features(features: Numbers, channels: int | None) -> Numbers:
    if not len(features):
        raise BadRegions("has 0 regions")
    if features.shape[1] != channels:
        raise BadRegions(f"has {features.shape[1]} channels instead of {channels}")
    with np.errstate(over="ignore"):
        half = features.astype(np.float16)
    if not np.isfinite(half).all():
        rows = np.flatnonzero(~np.isfinite(half).all(axis=1))
        beyond = np.isfinite(features[rows]).all()
        what = "values beyond half precision" if beyond else "NaN or infinite values"
        raise BadRegions(f"has {what} in {len(rows)} of {len(half)} regions")
    return half


def normalised(boxes: Numbers, size: Size) -> Numbers:
    """Boxes (K, 4) in pixels of an image of this (width, height), as float32 in [0, 1] of it.

    Raises:
        BadRegions: a box that is not finite, inverted, without area, or more than a pixel outside the image.
    """
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        raise BadRegions(f"has boxes of shape {tuple(boxes.shape)} instead of (regions, 4)")
    exact = boxes.astype(np.float64)
    width, height = size
    edges = np.array((width, height, width, height), dtype=np.float64)
    _refuse(exact, ~np.isfinite(exact).all(axis=1), "is not finite")
    _refuse(exact, (exact[:, :2] > exact[:, 2:]).any(axis=1), "is inverted")
    outside = (exact < -ROUNDING).any(axis=1) | (exact > edges + ROUNDING).any(axis=1)
    _refuse(exact, outside, f"lies outside its image of {width} x {height} pixels")
    clipped = exact.clip(0, edges)
    _refuse(exact, (clipped[:, :2] >= clipped[:, 2:]).any(axis=1), "has no area")
    if len(exact) and exact.max() <= 1 and min(size) > 2:
        raise BadRegions("has boxes that end within the first pixel: they seem normalised, and pixels are expected")
    return (clipped / edges).astype(np.float32)


def _refuse(boxes: Numbers, wrong: Any, what: str) -> None:
    """Name the first wrong box, and how many more there are."""
    places = np.flatnonzero(wrong)
    if len(places):
        shown = ", ".join(f"{edge:g}" for edge in boxes[places[0]])
        more = f", and {len(places) - 1} more" if len(places) > 1 else ""
        raise BadRegions(f"box {places[0]} ({shown}) {what}{more}")


def _kept(regions: Regions, scores: Numbers | None, limits: Limits | None, as_listed: bool) -> Regions:
    """The regions that are kept, in their source's order."""
    if limits is None or regions.whole:
        return regions
    min_count, max_count = limits
    told = regions.boxes if regions.features is None else regions.features
    assert told is not None
    worth = scores if scores is not None else _areas(regions.boxes, len(told))
    ranked = np.arange(len(told)) if as_listed else np.argsort(-worth, kind="stable")
    count = max_count if scores is None else max(min_count, int((scores >= MIN_SCORE).sum()))
    chosen = np.sort(ranked[: min(count, max_count)])
    return replace(
        regions,
        features=None if regions.features is None else regions.features[chosen],
        boxes=None if regions.boxes is None else regions.boxes[chosen],
    )


def _areas(boxes: Numbers | None, count: int) -> Numbers:
    """Areas; zeros where there are no boxes, so that the first regions win."""
    if boxes is None:
        return np.zeros(count)
    areas: Numbers = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    return areas
