"""Training features that lie on an accelerator as a whole, so that a step copies no more than words to it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields

import torch
from torch import Tensor

from harness.data.batches import VisualSource
from harness.data.features import NullSource
from harness.data.pixels import PixelSource
from zoo.captioner import Visual, VisualSpec

SHARE_OF_FREE = 0.5
"""Of the free memory, at most: the rest is for training, and for a copy of the features while they are made wider."""
IMAGES_AT_ONCE = 256
_COUNTED = {"features": "mask", "mask": "mask", "boxes": "mask", "relations": "relations", "attributes": "attributes"}
"""Parts padded to the longest image, each with the part that tells its length."""
_PADDING = -1
"""Of whole numbers; other parts are padded with zeros."""


class ResidentSource:
    """Visual input of images on a device; batches are gathered there.

    They equal those of the source that they were read from, bit for bit: padded to the longest image of the batch, and
    in float32, from half precision only where that holds every number exactly.

    Attributes:
        nbytes: memory taken.

    Args:
        parts: of all images, by the names of `Visual`.
        lengths: of each image, by the parts that tell them.
    """

    def __init__(
        self, image_ids: Sequence[int], parts: dict[str, Tensor], lengths: Mapping[str, Sequence[int]]
    ) -> None:
        self._rows = {image_id: row for row, image_id in enumerate(image_ids)}
        self._parts, self._lengths = parts, lengths
        self.nbytes = sum(part.nbytes for part in parts.values())

    def visual(self, image_ids: Sequence[int], spec: VisualSpec) -> Visual:  # noqa: ARG002  # read for one spec
        """Visual input of the images on the device, in the order given."""
        rows = [self._rows[image_id] for image_id in image_ids]
        longest = {name: max(counts[row] for row in rows) for name, counts in self._lengths.items()}
        gathered = {}
        for name, part in self._parts.items():
            index = torch.tensor(rows, device=part.device)
            taken = (part[:, : longest[_COUNTED[name]]] if name in _COUNTED else part).index_select(0, index)
            gathered[name] = taken.float() if taken.is_floating_point() else taken
        return Visual(**gathered)


def free_memory(device: torch.device) -> int | None:
    """Free bytes of an accelerator, which it is asked for; None on a processor, where features stay mapped files."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else None


def resident(
    source: VisualSource,
    image_ids: Sequence[int],
    spec: VisualSpec,
    device: torch.device,
    say: Callable[[str], None],
) -> VisualSource:
    """The features of the images on `device` where they fit, which `say` is told; otherwise `source`.

    Pixels are never kept, and neither is the input of models that see nothing.
    """
    free = free_memory(device)
    if free is None or spec.kind == "none" or isinstance(source, PixelSource | NullSource):
        return source
    held = hold(source, image_ids, spec, device, int(SHARE_OF_FREE * free))
    images, there = f"features of {len(image_ids):,} training images", f"{free / 2**30:.1f} GiB free on {device}"
    if held is None:
        say(f"  {images} are read batch by batch: they take more than half of the {there}")
        return source
    say(f"  {images} lie on the device: {held.nbytes / 2**30:.2f} GiB of the {there}")
    return held


def hold(
    source: VisualSource, image_ids: Sequence[int], spec: VisualSpec, device: torch.device, budget: int
) -> ResidentSource | None:
    """Read the visual input of all images to `device`; None as soon as it is known to take more than `budget` bytes."""
    whole: dict[str, Tensor] = {}
    lengths: dict[str, list[int]] = {}
    for first in range(0, len(image_ids), IMAGES_AT_ONCE):
        visual = source.visual(image_ids[first : first + IMAGES_AT_ONCE], spec)
        for name, counted in _lengths(visual).items():
            lengths.setdefault(name, []).extend(counted)
        read: dict[str, Tensor | None] = {part.name: getattr(visual, part.name) for part in fields(visual)}
        chunk = {name: value for name, value in read.items() if value is not None}
        layouts = {name: _layout(value, whole.get(name)) for name, value in chunk.items()}
        if sum(len(image_ids) * math.prod(shape) * dtype.itemsize for shape, dtype in layouts.values()) > budget:
            return None
        for name, value in chunk.items():
            shape, dtype = layouts[name]
            before = whole.get(name)
            if before is None or before.shape[1:] != shape or before.dtype != dtype:
                empty = _PADDING if dtype == torch.long else 0
                whole[name] = torch.full((len(image_ids), *shape), empty, dtype=dtype, device=device)
                if before is not None:
                    _corner(whole[name], 0, before.shape).copy_(before)
            _corner(whole[name], first, value.shape).copy_(value)
    return ResidentSource(image_ids, whole, lengths)


def _lengths(visual: Visual) -> dict[str, list[int]]:
    """Visual tokens, relations and attributed regions of each image."""
    assert visual.mask is not None, "cached features have a mask"
    rows = {"relations": visual.relations, "attributes": visual.attributes}
    counted = {name: (each[..., 0] >= 0).sum(1).tolist() for name, each in rows.items() if each is not None}
    return {"mask": visual.mask.sum(1).tolist(), **counted}


def _layout(value: Tensor, before: Tensor | None) -> tuple[torch.Size, torch.dtype]:
    """Shape of an image and type in which this chunk and what was read before are kept exactly."""
    shape = value.shape[1:]
    if before is not None:
        shape = torch.Size(map(max, shape, before.shape[1:]))
    if not value.is_floating_point():
        return shape, value.dtype
    exact = (before is None or before.dtype == torch.half) and torch.equal(value.half().float(), value)
    return shape, torch.half if exact else torch.float32


def _corner(whole: Tensor, first: int, shape: torch.Size) -> Tensor:
    """The part of `whole` that begins with image `first` and has this shape."""
    return whole[(slice(first, first + shape[0]), *(slice(size) for size in shape[1:]))]
