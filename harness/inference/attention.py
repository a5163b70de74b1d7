"""Attention maps: the image locations that a model attends to for each word of a caption, as data and as pictures."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont

from harness.data.batches import VisualSource, evaluation_batches, pad_rows
from harness.data.dataset import Dataset
from harness.data.features import Features
from harness.data.graph_source import WithGraph
from harness.data.images import image_size, load_image
from harness.data.pixels import Preprocessing
from harness.data.regions.features import RegionFeatures, RegionsAndGrid
from harness.data.vocabulary import Vocabulary
from harness.utils.atomic import replacing
from harness.utils.errors import BenchError
from results.records import AttentionRecord
from zoo import Captioner
from zoo.attention_maps import attends, attention_weights, region_attention_weights

IMAGES = 24
SOURCES = 6
"""Number of locations of an image whose self-attention in the encoder is recorded: those most attended by words."""
_AT_ONCE = 24

Box = tuple[float, float, float, float]
T = TypeVar("T")
WHOLE: Box = (0.0, 0.0, 1.0, 1.0)
PANEL = 224
COLUMNS = 6
_LABEL, _GAP = 26, 8
_HEAT = (255, 60, 0)
_DARKEST = 0.45
_STRONGEST = 0.6


def chosen_images(images: Sequence[T], most: int = IMAGES) -> list[T]:
    """At most `most` of the images, evenly spread, so that all models use the same ones."""
    count = min(most, len(images))
    return [images[index * len(images) // count] for index in range(count)]


def shown_parts(pictures: Dataset, preprocessing: Preprocessing) -> Callable[[int], Box]:
    """A function from an image id to the part of the image that `preprocessing` keeps, as fractions of its sides."""
    paths = {sample.image_id: pictures.path(sample) for sample in pictures.samples}

    def part(image_id: int) -> Box:
        width, height = image_size(paths[image_id])
        left, top, right, bottom = preprocessing.seen(width, height)
        x1, x2, y1, y2 = (round(edge, 6) for edge in (left / width, right / width, top / height, bottom / height))
        return x1, y1, x2, y2

    return part


def check_attends(name: str, model: Captioner, source: VisualSource) -> None:
    """Raise BenchError if the model has no attention to show, or attends to regions without boxes."""
    if not attends(model):
        visual_input = {"none": "nothing", "pooled": "one vector an image"}.get(
            model.visual.kind, "the image otherwise"
        )
        raise BenchError(
            f"{name} does not attend to image locations: it gets {visual_input}",
            "`bench caption` captions the pictures without maps",
        )
    regions = _regions_of(source)
    if regions is not None and not regions.has_boxes:
        raise BenchError(
            f"{name} gets regions without boxes, so their locations are unknown", "use regions that come with boxes"
        )


def attention_records(
    model: Captioner,
    vocabulary: Vocabulary,
    source: VisualSource,
    tokens_by_image: Mapping[int, Sequence[int]],
    parts: Callable[[int], Box],
    *,
    device: torch.device,
    head: int | None = None,
) -> Iterator[AttentionRecord]:
    """The attention of each word of a caption, image by image; captions without words are left out.

    If the encoder has self-attention, the weights of the locations that words attend to most are recorded too.

    Args:
        model: one that passes `check_attends`.
        said: tokens of the captions by image id, without the begin token.
        parts: see `shown_parts`.
        head: a single head of the decoder instead of the mean, counted as in `zoo.attention_maps.attention_weights`.

    Raises:
        BenchError: the visual tokens of a model on pixels form no regular grid.
        ZooError: there is no such head.
    """
    for ids, visual in evaluation_batches(list(tokens_by_image), source, model.visual, _AT_ONCE):
        without_end = [
            list(takewhile(lambda token: token != vocabulary.eos, tokens_by_image[image_id])) for image_id in ids
        ]
        tokens = pad_rows([[vocabulary.bos, *row[:-1]] for row in without_end], vocabulary.pad)
        moved = visual.to(device)
        attended = attention_weights(model, moved, tokens.to(device), head)
        assert attended is not None, "checked by check_attends"
        weights = attended.cpu().clamp(max=1.0)  # rounding may exceed 1 for a single location
        related = region_attention_weights(model, moved)
        if (regions := _regions_of(source)) is not None:
            boxes = _boxes(regions, ids)
            grid = None
        else:
            shape = (1, 1) if visual.pixels is None else visual.pixels.shape[-2:]
            grid = source.grid if isinstance(source, Features) else grid_of(weights.shape[2], *shape)
            boxes = [None if parts(image_id) == WHOLE else cells_within(grid, parts(image_id)) for image_id in ids]
        for row, image_id in enumerate(ids):
            words = words_with_positions(vocabulary, without_end[row])
            if not words:
                continue
            locations = boxes[row]
            count = len(locations) if locations is not None else weights.shape[2]
            word_weights = [weights[row, positions, :count].mean(0).tolist() for _, positions in words]
            sources = () if related is None else looked_at_most(word_weights)
            source_weights = (
                [] if related is None else related[row, list(sources), :count].cpu().clamp(max=1.0).tolist()
            )
            yield AttentionRecord(
                image_id,
                tuple(word for word, _ in words),
                tuple(map(tuple, word_weights)),
                grid=grid if locations is None else None,
                boxes=locations,
                sources=sources,
                among=tuple(map(tuple, source_weights)),
            )


def looked_at_most(weights: Sequence[Sequence[float]]) -> tuple[int, ...]:
    """The locations with the largest weight of a word, at most `SOURCES`, those of most words first."""
    most_attended = Counter(max(range(len(row)), key=row.__getitem__) for row in weights)
    return tuple(location for location, _ in most_attended.most_common(SOURCES))


def words_with_positions(vocabulary: Vocabulary, tokens: Sequence[int]) -> list[tuple[str, list[int]]]:
    """The words of a caption, each with the positions of its tokens.

    A token belongs to the word that it extends when the caption is decoded token by token; tokens without text belong
    to no word.
    """
    positions: list[list[int]] = []
    text = ""
    for position in range(len(tokens)):
        before = text
        text = vocabulary.decode(tokens[: position + 1])
        count = len(text.split())
        if count > len(positions):
            positions += [[position] for _ in range(count - len(positions))]
        elif count < len(positions):  # some tokenizers join pieces only when the next one follows
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
    """Boxes of the cells of a grid that covers a part of an image, row by row."""
    (rows, columns), (left, top, right, bottom) = grid, part
    x = [left + (right - left) * column / columns for column in range(columns + 1)]
    y = [top + (bottom - top) * row / rows for row in range(rows + 1)]
    return tuple((x[c], y[r], x[c + 1], y[r + 1]) for r in range(rows) for c in range(columns))


def _regions_of(source: VisualSource) -> RegionFeatures | None:
    """The regions of a source, which may also have a grid or a scene graph; None without regions."""
    if isinstance(source, WithGraph):
        return _regions_of(source.source)
    if isinstance(source, RegionsAndGrid):
        return source.regions
    return source if isinstance(source, RegionFeatures) else None


def _boxes(source: RegionFeatures, ids: Sequence[int]) -> list[tuple[Box, ...] | None]:
    """The boxes of each image without padding; None without boxes."""
    _, mask, boxes = source.padded(ids)
    if boxes is None:
        return [None] * len(ids)
    valid_boxes = (boxes[row, : mask[row].sum()].tolist() for row in range(len(ids)))
    return [tuple((x1, y1, x2, y2) for x1, y1, x2, y2 in image) for image in valid_boxes]


def draw_attention(picture: Path, record: AttentionRecord, out: Path) -> None:
    """Write a PNG: the plain image, then one panel for each word of its caption, with the word below.

    Each panel is scaled to its own maximum weight. Cells of a grid are interpolated; regions keep their edges, overlaps
    show the larger weight, and a frame marks the region with the largest weight. Further panels show the encoder's
    self-attention of the framed location.

    Raises:
        BadImage: the image cannot be read.
        OSError: the file cannot be written.
    """
    image = load_image(picture)
    sides = [max(1, round(side * PANEL / max(image.size))) for side in image.size]
    plain = image.resize((sides[0], sides[1]), Image.Resampling.LANCZOS)
    panels = [("", plain)] + [
        (word, _heated(plain, weights, record)) for word, weights in zip(record.words, record.weights, strict=True)
    ]
    for source, weights in zip(record.sources, record.among, strict=True):
        panels.append(("from the frame", _heated(plain, weights, record, source)))
    columns = min(COLUMNS, len(panels))
    width = plain.width + _GAP
    height = plain.height + _LABEL + _GAP
    sheet = Image.new("RGB", (columns * width + _GAP, -(-len(panels) // columns) * height + _GAP), "white")
    pen = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(16)
    for index, (word, panel) in enumerate(panels):
        left = _GAP + index % columns * width
        top = _GAP + index // columns * height
        sheet.paste(panel, (left, top))
        pen.text((left, top + plain.height + 4), _fitting(word, font, plain.width), fill="black", font=font)
    with replacing(out) as temporary:
        sheet.save(temporary, "PNG")


def _heated(
    plain: Image.Image, weights: tuple[float, ...], record: AttentionRecord, source: int | None = None
) -> Image.Image:
    if record.grid:
        cells = np.asarray(weights, dtype=np.float32).reshape(record.grid)
        heat = np.asarray(Image.fromarray(cells).resize(plain.size, Image.Resampling.BILINEAR))
    else:
        heat = _box_heat(weights, record, plain.size)
    heat = (heat / max(float(heat.max()), 1e-12))[..., None]
    pixels = np.asarray(plain, dtype=np.float32) * (_DARKEST + (1 - _DARKEST) * heat)
    pixels += (np.asarray(_HEAT, dtype=np.float32) - pixels) * (_STRONGEST * heat**2)
    heated = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
    framed: Box | None = None
    if record.boxes is not None:
        framed = record.boxes[int(np.argmax(weights)) if source is None else source]
    elif record.grid is not None and source is not None:
        framed = cells_within(record.grid, WHOLE)[source]
    if framed is not None:
        left, top, right, bottom = _pixels(framed, plain.size)
        frame = (left, top, max(right - 1, left), max(bottom - 1, top))
        ImageDraw.Draw(heated).rectangle(frame, outline="white", width=2)
    return heated


def _box_heat(weights: tuple[float, ...], record: AttentionRecord, size: tuple[int, int]) -> np.ndarray:
    heat = np.zeros((size[1], size[0]), dtype=np.float32)
    for weight, box in zip(weights, record.boxes or (), strict=True):
        left, top, right, bottom = _pixels(box, size)
        covered = heat[top:bottom, left:right]
        np.maximum(covered, weight, out=covered)
    return heat


def _pixels(box: tuple[float, float, float, float], size: tuple[int, int]) -> tuple[int, int, int, int]:
    """A box in whole pixels of an image of this size, at least one a side."""
    (left, top, right, bottom), (width, height) = box, size
    x, y = (min(max(round(edge * side), 0), side - 1) for edge, side in ((left, width), (top, height)))
    return x, y, max(x + 1, min(round(right * width), width)), max(y + 1, min(round(bottom * height), height))


def _fitting(word: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, width: int) -> str:
    """The word, cut with an ellipsis if it is wider than its panel."""
    text = word[:80]
    while len(text) > 1 and font.getlength(text) > width:
        text = text[:-2] + "…"
    return text
