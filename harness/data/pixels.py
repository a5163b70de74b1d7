"""Visual input that is kept in memory: prepared images, loaded by threads, and features on a GPU.

If all training features are on the GPU, a training step copies only words to it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from harness.data.batches import VisualSource
from harness.data.dataset import Dataset
from harness.data.features import NullSource, readers
from harness.data.hub import HubPreprocessing
from harness.data.images import BadImage, ImagePreprocessing, load_image
from harness.measure.memory import free_memory
from harness.utils.errors import BenchError
from zoo.captioner import Visual, VisualSpec

KEPT_BYTES = 256 * 2**20
"""Minimum memory for prepared images, so that a small data set is decoded once and not in every epoch."""
SPARED = 0.5
"""Share of the free memory that images for a GPU leave free; all of COCO in 8 bits takes 50 GB."""
Preprocessing = ImagePreprocessing | HubPreprocessing
Pixels = np.ndarray[Any, np.dtype[np.float32 | np.uint8]]
SHARE_OF_FREE = 0.5
"""Maximum share of the free memory for features; the rest is for training, and for a copy while they are widened."""
IMAGES_AT_ONCE = 256
_COUNTED = {"features": "mask", "mask": "mask", "boxes": "mask", "relations": "relations", "attributes": "attributes"}
"""Parts that are padded to the longest image, each with the part that determines its length."""
_CPU = torch.device("cpu")
_PADDING = -1  # of integers; other parts are padded with zeros


def preparation(preprocessing: Preprocessing, device: torch.device) -> tuple[Callable[..., Pixels], Tensor | None]:
    """A function from an image to pixels, and for a GPU, which gets 8-bit pixels, their normalised `levels`."""
    if device.type == "cuda" and isinstance(preprocessing, ImagePreprocessing):
        return preprocessing.eight_bits, torch.from_numpy(preprocessing.levels)
    return preprocessing, None


def read_pixels(path: Path, prepare: Callable[[Image.Image], Pixels]) -> Pixels | BadImage:
    """Pixels (3, H, W), or the error, so that one message can list all bad images of a batch."""
    try:
        return prepare(load_image(path))
    except BadImage as bad:
        return bad


def stack_pixels(results: Sequence[Pixels | BadImage], levels: Tensor | None) -> Visual:
    """Pixels (B, 3, H, W) with the levels of `preparation`; BenchError that lists images that cannot be read."""
    bad = [result for result in results if isinstance(result, BadImage)]
    if bad:
        raise BenchError(
            "images cannot be read: " + "; ".join(f"{image.path} ({image.reason})" for image in bad),
            hint="`bench data verify` lists all of them; --skip-bad-images leaves them out and records which",
        )
    pixels = torch.from_numpy(np.stack([result for result in results if not isinstance(result, BadImage)]))
    return Visual(pixels=pixels, levels=None if levels is None else levels.expand(len(pixels), -1, -1))


class PixelSource:
    """The images of a data set, for models on pixels. Safe to share between threads.

    The images requested first stay in memory: `KEPT_BYTES` of them, and for a GPU as many as leave half of the memory
    free that was free at first.
    """

    def __init__(self, dataset: Dataset, preprocessing: Preprocessing, device: torch.device) -> None:
        self._paths = {sample.image_id: dataset.path(sample) for sample in dataset.samples}
        self._prepare, self._levels = preparation(preprocessing, device)
        self._kept: dict[int, Pixels] = {}
        self._kept_bytes = 0
        self._spared = SPARED * (free_memory(_CPU) or 0)

    def visual(self, image_ids: Sequence[int], spec: VisualSpec) -> Visual:
        """Pixels of the images, in order; BenchError where one cannot be read, or the model needs other input."""
        if spec.kind != "pixels":
            raise BenchError(f"the model needs visual input of kind {spec.kind}, but these are images")
        read = [image_id for image_id in image_ids if image_id not in self._kept]
        paths = [self._paths[image_id] for image_id in read]
        with readers() as threads:
            newly_read = dict(zip(read, threads.map(read_pixels, paths, [self._prepare] * len(paths)), strict=True))
        images = [newly_read[image_id] if image_id in newly_read else self._kept[image_id] for image_id in image_ids]
        visual = stack_pixels(images, self._levels)
        for image_id, image in newly_read.items():
            if isinstance(image, BadImage) or (self._kept_bytes + image.nbytes > KEPT_BYTES and not self._room()):
                continue
            self._kept_bytes += image.nbytes
            self._kept[image_id] = image
        return visual

    def _room(self) -> bool:
        """Whether more images may be kept, given the memory that is free now."""
        return self._levels is not None and (free_memory(_CPU) or 0) > self._spared


class ResidentSource:
    """Visual input of images on a device; batches are gathered there.

    They equal the source's batches bit for bit: padded to the longest image of the batch, and in float32. They are
    stored in half precision only if that is exact.

    Args:
        parts: tensors of all images, by their names in `Visual`.
        lengths: the length of each image, by the parts that determine it.
    """

    def __init__(
        self, image_ids: Sequence[int], parts: dict[str, Tensor], lengths: Mapping[str, Sequence[int]]
    ) -> None:
        self._rows = {image_id: row for row, image_id in enumerate(image_ids)}
        self._parts = parts
        self._lengths = lengths
        self.nbytes = sum(part.nbytes for part in parts.values())

    def visual(self, image_ids: Sequence[int], spec: VisualSpec) -> Visual:  # noqa: ARG002  # read for one spec
        """Visual input of the images on the device, in the order given."""
        rows = [self._rows[image_id] for image_id in image_ids]
        longest = {name: max(counts[row] for row in rows) for name, counts in self._lengths.items()}
        gathered = {}
        # Nothing here waits for the GPU, which still computes earlier steps: it would count as waiting for data.
        index = torch.tensor(rows).to(next(iter(self._parts.values())).device, non_blocking=True)
        for name, part in self._parts.items():
            rows_of_part = (part[:, : longest[_COUNTED[name]]] if name in _COUNTED else part).index_select(0, index)
            gathered[name] = rows_of_part.float() if rows_of_part.is_floating_point() else rows_of_part
        return Visual(**gathered)


def device_memory(device: torch.device) -> int | None:
    """Free bytes of a GPU; None on a CPU, where features stay in mapped files."""
    return free_memory(device) if device.type == "cuda" else None


def resident(
    source: VisualSource, image_ids: Sequence[int], spec: VisualSpec, device: torch.device, note: Callable[[str], None]
) -> VisualSource:
    """The features of the images on `device` if they fit, else `source`, as always for pixels; `note` reports it."""
    free = device_memory(device)
    if free is None or spec.kind == "none" or isinstance(source, PixelSource | NullSource):
        return source
    held = hold(source, image_ids, spec, device, int(SHARE_OF_FREE * free))
    images = f"features of {len(image_ids):,} training images"
    free_memory = f"{free / 2**30:.1f} GiB free on {device}"
    if held is None:
        note(f"  {images} are read batch by batch: they take more than half of the {free_memory}")
        return source
    note(f"  {images} are on the device: {held.nbytes / 2**30:.2f} GiB of the {free_memory}")
    return held


def hold(
    source: VisualSource, image_ids: Sequence[int], spec: VisualSpec, device: torch.device, budget: int
) -> ResidentSource | None:
    """Read the visual input of all images to `device`; None if it needs more than `budget` bytes."""
    resident: dict[str, Tensor] = {}
    lengths: dict[str, list[int]] = {}
    for first in range(0, len(image_ids), IMAGES_AT_ONCE):
        visual = source.visual(image_ids[first : first + IMAGES_AT_ONCE], spec)
        for name, counted in _lengths(visual).items():
            lengths.setdefault(name, []).extend(counted)
        chunk = visual.parts()
        layouts = {name: _layout(value, resident.get(name)) for name, value in chunk.items()}
        if sum(len(image_ids) * math.prod(shape) * dtype.itemsize for shape, dtype in layouts.values()) > budget:
            return None
        for name, value in chunk.items():
            shape, dtype = layouts[name]
            before = resident.get(name)
            if before is None or before.shape[1:] != shape or before.dtype != dtype:
                empty = _PADDING if dtype == torch.long else 0
                resident[name] = torch.full((len(image_ids), *shape), empty, dtype=dtype, device=device)
                if before is not None:
                    _corner(resident[name], 0, before.shape).copy_(before)
            _corner(resident[name], first, value.shape).copy_(value)
    return ResidentSource(image_ids, resident, lengths)


def _lengths(visual: Visual) -> dict[str, list[int]]:
    """Visual tokens, relations and attributed regions of each image."""
    assert visual.mask is not None, "cached features have a mask"
    rows = {"relations": visual.relations, "attributes": visual.attributes}
    counted = {name: (value[..., 0] >= 0).sum(1).tolist() for name, value in rows.items() if value is not None}
    return {"mask": visual.mask.sum(1).tolist(), **counted}


def _layout(value: Tensor, before: Tensor | None) -> tuple[torch.Size, torch.dtype]:
    """Shape of an image, and type, with which this chunk and earlier ones are stored exactly."""
    shape = value.shape[1:]
    if before is not None:
        shape = torch.Size(map(max, shape, before.shape[1:]))
    if not value.is_floating_point():
        return shape, value.dtype
    exact = before is None or before.dtype == torch.half
    exact = exact and (value.dtype == torch.half or torch.equal(value.half().float(), value))
    return shape, torch.half if exact else torch.float32


def _corner(whole: Tensor, first: int, shape: torch.Size) -> Tensor:
    """The part of `whole` that begins with image `first` and has this shape."""
    return whole[(slice(first, first + shape[0]), *(slice(size) for size in shape[1:]))]
