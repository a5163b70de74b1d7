"""Region sources, and their regions checked and selected.

Boxes are converted to [0, 1] of the image. Boxes that exceed the image by at most one pixel are clipped, as rounding;
more is an error, since such boxes belong to an image of another size.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any

import numpy as np

from harness.config.features import RegionConfig
from harness.data.dataset import Dataset, Sample
from harness.data.images import BadImage, image_size

Numbers = np.ndarray[Any, np.dtype[np.floating[Any]]]
Size = tuple[int, int]  # width, height in pixels

MAX_BYTES = 1 << 28  # maximum size of one image's regions (256 MiB); more is refused as damaged or malicious
ROUNDING = 1.0  # pixels by which a box may exceed its image
MIN_SCORE = 0.2
"""Minimum detector score at which `adaptive` keeps regions beyond the minimum number, as in bottom-up attention."""
NO_SIZE = "its boxes are in pixels, the annotations have no width and height, and its image file"
_BEYOND_HALF = 65520
"""The least number that half precision, in which features are stored, rounds to infinity."""
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
    """K >= 1 valid regions: features (K, C), boxes (K, 4) in [0, 1], or None; `whole`: the image is the only one."""

    features: Numbers | None
    boxes: Numbers | None
    size: Size | None = None
    whole: bool = False

    @property
    def count(self) -> int:
        """K."""
        rows = self.boxes if self.features is None else self.features
        return 0 if rows is None else len(rows)


class RegionSource:
    """A source of regions by image id, which implements `image`, or `read` itself.

    Its `name` is shown in the signature; its `fingerprint` (hex) changes with any of its files. Of `boxes_only` the
    features are pooled from a backbone's map.
    """

    name: str
    fingerprint: str
    boxes_only: bool = False

    def image(self, image_id: int) -> RawRegions | None:
        """Regions of one image, None if the source has none; BadRegions if they cannot be used."""
        raise NotImplementedError

    def read(self, image_ids: Sequence[int]) -> Iterator[tuple[int, RawRegions | str]]:
        """Regions of images, in any order, or errors, which replace what came before; missing ones are left out."""
        for image_id in image_ids:
            try:
                regions = self.image(image_id)
                if regions is not None:
                    yield image_id, regions
            except BadRegions as bad:
                yield image_id, str(bad)


def read_regions(
    source: RegionSource, dataset: Dataset, *, skip: Collection[int] = (), config: RegionConfig | None = None
) -> Iterator[tuple[int, Regions | str]]:
    """Valid regions, or the error, of every image of a data set except those in `skip`; each at least once.

    An id is repeated only with an error, which replaces its regions. BenchError if the source cannot be read.

    Within the `limits` of `config` are kept those of a score of 0.2 or more, best first; without scores the maximum
    number, largest area first; without boxes, or `as_listed`, the first ones. They stay in their source's order.
    """
    samples = {sample.image_id: sample for sample in dataset.samples if sample.image_id not in skip}
    missing = dict.fromkeys(samples)
    raw_regions = source.read(list(samples))
    sample_regions = list(islice(raw_regions, _FIRST))
    widths = Counter(
        raw.features.shape[-1] for _, raw in sample_regions if not isinstance(raw, str) and raw.features is not None
    )
    channels = widths.most_common(1)[0][0] if widths else None
    for image_id, raw in chain(sample_regions, raw_regions):
        missing.pop(image_id, None)
        sample = samples[image_id]
        try:
            if isinstance(raw, str):
                raise BadRegions(raw)
            yield image_id, _select(_validated(raw, channels, sample, dataset), raw.scores, config)
        except BadRegions as bad:
            file = f", {sample.file}" if sample.file else ""
            yield image_id, f"image {image_id}: {bad} ({source.name}{file})"
    for image_id in missing:
        yield image_id, f"image {image_id}: has no regions in {source.name}"


def size_of(sample: Sample, dataset: Dataset) -> Size:
    """Width and height of an image, from its annotation or its file; BadRegions if neither has them."""
    try:
        return dataset.sizes.get(sample.image_id) or image_size(dataset.path(sample))
    except BadImage as bad:
        raise BadRegions(f"{NO_SIZE} {bad.reason}") from bad


def _lies_on_its_side(size: Size, sample: Sample, dataset: Dataset) -> bool:
    """Whether the boxes' size has width and height swapped: that of the file before EXIF rotates it."""
    width, height = size
    with suppress(BadImage):  # no picture, so no map to pool from either
        return width != height and image_size(dataset.path(sample)) == (height, width)
    return False


def _validated(raw: RawRegions, channels: int | None, sample: Sample, dataset: Dataset) -> Regions:
    features = None if raw.features is None else _sound_features(raw.features, channels)
    if raw.boxes is None:
        return Regions(features, None)
    size = raw.size or size_of(sample, dataset)
    if features is None and _lies_on_its_side(size, sample, dataset):
        raise BadRegions(f"is {size[0]} x {size[1]} in its annotation, and {size[1]} x {size[0]} upright")
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
    if not np.abs(features).max(initial=0) < _BEYOND_HALF:  # also true for NaN
        rows = np.flatnonzero(~(np.abs(features) < _BEYOND_HALF).all(axis=1))
        description = "values beyond half precision" if np.isfinite(features[rows]).all() else "NaN or infinite values"
        raise BadRegions(f"has {description} in {len(rows)} of {len(features)} regions")
    return features


def normalised(boxes: Numbers, size: Size) -> Numbers:
    """Boxes (K, 4) in pixels, as float32 in [0, 1] of an image of this (width, height); BadRegions for unsound ones."""
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


def _refuse(boxes: Numbers, wrong: Any, problem: str) -> None:
    """BadRegions if any box is wrong, with the first one and the number of others."""
    indices = np.flatnonzero(wrong)
    if len(indices):
        edges = ", ".join(f"{edge:g}" for edge in boxes[indices[0]])
        suffix = "" if len(indices) == 1 else f", and {len(indices) - 1} more"
        raise BadRegions(f"box {indices[0]} ({edges}) {problem}{suffix}")


def _select(regions: Regions, scores: Numbers | None, config: RegionConfig | None) -> Regions:
    """The regions within the limits of `config`, in their source's order."""
    if config is None or config.limits is None or regions.whole:
        return regions
    min_count, max_count = config.limits
    features = regions.features
    boxes = regions.boxes
    priority: Numbers = np.zeros(regions.count)  # the first regions win where there are no boxes
    if scores is not None:
        priority = scores
    elif boxes is not None:
        priority = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    ranked = np.arange(regions.count) if config.as_listed else np.argsort(-priority, kind="stable")
    count = max_count if scores is None else max(min_count, int((scores >= MIN_SCORE).sum()))
    indices = np.sort(ranked[: min(count, max_count)])
    return replace(
        regions,
        features=None if features is None else features[indices],
        boxes=None if boxes is None else boxes[indices],
    )
