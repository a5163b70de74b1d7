"""Attention maps: the image locations that a model attended to for each word of its captions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import TypeVar

import torch

from harness.data.batches import VisualSource, evaluation_batches, pad_rows
from harness.data.dataset import Dataset
from harness.data.features import Features
from harness.data.graphs.images import WithGraph
from harness.data.images import image_size
from harness.data.pixels import Preprocessing
from harness.data.regions.features import RegionFeatures, RegionsAndGrid
from harness.data.vocabulary import Vocabulary
from harness.utils.errors import BenchError
from results.records import AttentionRecord
from zoo import Captioner
from zoo.attention_maps import attends, attention_weights

IMAGES = 24
"""Number of images of which a run keeps attention maps."""
_AT_ONCE = 24

Box = tuple[float, float, float, float]
T = TypeVar("T")
WHOLE: Box = (0.0, 0.0, 1.0, 1.0)


def chosen_images(images: Sequence[T], most: int = IMAGES) -> list[T]:
    """At most `most` of the images, evenly spread: the same for every model."""
    count = min(most, len(images))
    return [images[number * len(images) // count] for number in range(count)]


def shown_parts(pictures: Dataset, preprocessing: Preprocessing) -> Callable[[int], Box]:
    """By image id, the part of the image that `preprocessing` keeps, in fractions of its sides."""
    paths = {sample.image_id: pictures.path(sample) for sample in pictures.samples}

    def part(image_id: int) -> Box:
        width, height = image_size(paths[image_id])
        left, top, right, bottom = preprocessing.seen(width, height)
        x1, x2, y1, y2 = (round(edge, 6) for edge in (left / width, right / width, top / height, bottom / height))
        return x1, y1, x2, y2

    return part


def check_attends(model: Captioner, source: VisualSource) -> None:
    """Raise BenchError if the model has no attention to show, or attends to regions without boxes."""
    if not attends(model):
        seen = {"none": "nothing", "pooled": "one vector an image"}.get(model.visual.kind, "the image otherwise")
        raise BenchError(f"the model does not attend to image locations: it gets {seen}")
    regions = _regions_of(source)
    if regions is not None and not regions.has_boxes:
        raise BenchError(
            "the model gets regions without boxes, so their locations are unknown", "use regions that come with boxes"
        )


def attention_records(
    model: Captioner,
    vocabulary: Vocabulary,
    source: VisualSource,
    said: Mapping[int, Sequence[int]],
    parts: Callable[[int], Box],
    *,
    device: torch.device,
) -> Iterator[AttentionRecord]:
    """Attention of each word of a caption, image by image; captions without a word are left out.

    Args:
        model: one that passes `check_attends`.
        said: tokens of the captions by image id, without the begin token.
        parts: as `shown_parts` gives them.

    Raises:
        BenchError: the visual tokens of a model on pixels form no regular grid.
    """
    for ids, visual in evaluation_batches(list(said), source, model.visual, _AT_ONCE):
        spoken = [list(takewhile(lambda token: token != vocabulary.eos, said[image_id])) for image_id in ids]
        tokens = pad_rows([[vocabulary.bos, *row[:-1]] for row in spoken], vocabulary.pad)
        found = attention_weights(model, visual.to(device), tokens.to(device))
        assert found is not None, "checked by check_attends"
        weights = found.cpu().clamp(max=1.0)  # rounding may exceed 1 for a single location
        if (regions := _regions_of(source)) is not None:
            boxes, grid = _boxes(regions, ids), None
        else:
            shape = (1, 1) if visual.pixels is None else visual.pixels.shape[-2:]
            grid = source.grid if isinstance(source, Features) else grid_of(weights.shape[2], *shape)
            boxes = [None if parts(image_id) == WHOLE else cells_within(grid, parts(image_id)) for image_id in ids]
        for row, image_id in enumerate(ids):
            words = words_with_positions(vocabulary, spoken[row])
            if not words:
                continue
            places = boxes[row]
            count = len(places) if places is not None else weights.shape[2]
            looked = [weights[row, positions, :count].mean(0).tolist() for _, positions in words]
            yield AttentionRecord(
                image_id,
                tuple(word for word, _ in words),
                tuple(map(tuple, looked)),
                grid=grid if places is None else None,
                boxes=places,
            )


def words_with_positions(vocabulary: Vocabulary, tokens: Sequence[int]) -> list[tuple[str, list[int]]]:
    """The words of a caption, each with the positions of its tokens.

    A token belongs to the word that it extends when the caption is decoded token by token; tokens that add no text
    belong to none.
    """
    positions: list[list[int]] = []
    text = ""
    for position in range(len(tokens)):
        before, text = text, vocabulary.decode(tokens[: position + 1])
        count = len(text.split())
        if count > len(positions):
            positions += [[position] for _ in range(count - len(positions))]
        elif count < len(positions):  # a tokenizer that joins pieces only once it has seen the next
            del positions[count:]
        elif text != before:
            positions[-1].append(position)
    return list(zip(text.split(), positions, strict=True))


def grid_of(count: int, height: int, width: int) -> tuple[int, int]:
    """Rows and columns of `count` square cells that cover height x width pixels.

    Raises:
        BenchError: no such grid exists.
    """
    rows = round((count * height / width) ** 0.5)
    if not rows or count % rows:
        raise BenchError(f"{count} visual tokens form no regular grid over images of {height} x {width} pixels")
    return rows, count // rows


def cells_within(grid: tuple[int, int], part: Box) -> tuple[Box, ...]:
    """Boxes of the cells of a grid over a part of an image, row by row."""
    (rows, columns), (left, top, right, bottom) = grid, part
    x = [left + (right - left) * column / columns for column in range(columns + 1)]
    y = [top + (bottom - top) * row / rows for row in range(rows + 1)]
    return tuple((x[c], y[r], x[c + 1], y[r + 1]) for r in range(rows) for c in range(columns))


def _regions_of(source: VisualSource) -> RegionFeatures | None:
    """The regions that words are shown to look at, also where more stands beside them; None without regions."""
    if isinstance(source, WithGraph):
        return _regions_of(source.source)
    if isinstance(source, RegionsAndGrid):
        return source.regions
    return source if isinstance(source, RegionFeatures) else None


def _boxes(source: RegionFeatures, ids: Sequence[int]) -> list[tuple[Box, ...] | None]:
    """Each image's boxes, without padding."""
    _, mask, boxes = source.padded(ids)
    if boxes is None:
        return [None] * len(ids)
    found = (boxes[row, : mask[row].sum()].tolist() for row in range(len(ids)))
    return [tuple((x1, y1, x2, y2) for x1, y1, x2, y2 in image) for image in found]
