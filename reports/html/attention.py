"""Pages of attention maps: for some images of a split, the maps of each word of every model's caption.

The page itself has only images and captions; the panels of an image are in a separate script, which is loaded when one
of its captions is opened.
"""

import base64
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from reports.html.gallery import GalleryPage, script_call
from results.records import AttentionRecord
from results.runs import reading
from results.runs.gallery import GalleryItem
from results.runs.leaderboard import Group
from results.store.store import Store
from results.text import printable

BUDGET = 3_000_000  # most bytes that the overlays of all images take

_HEAT = (255, 60, 0)
_STRONGEST = 0.8
_SHOWN = 0.1


Panel = list[Any]
"""One word in a script: the word, a description of the map in words, an overlay, regions.

The overlay is a PNG in a data URI to be stretched over the picture, or "" with regions. A region is left, top, width
and height in per cent of the picture, opacity from 0 to 1, and 1 for a frame. The frame marks the largest weight; in
panels of the encoder's attention, which have no word, it marks the position that attends.
"""


@dataclass(frozen=True, slots=True)
class CaptionAttention:
    """The words of one model's caption; `label` distinguishes rows of one model, "" if there is one.

    The panels of words are followed by those of the encoder's attention between positions.
    """

    name: str
    label: str
    panels: list[Panel]

    @property
    def words(self) -> list[str]:
        return [panel[0] for panel in self.panels if panel[0]]


Maps = tuple[dict[int, tuple[CaptionAttention, ...]], int]
"""The captions of one split by image id, and the number of images left out to keep the report small."""


@dataclass(frozen=True, slots=True)
class AttentionPage:
    """The images of one split whose maps are shown, hardest first, and by file the scripts of their panels."""

    file: str
    gallery: GalleryPage
    images: tuple[tuple[GalleryItem, tuple[CaptionAttention, ...], str], ...]
    left_out: int
    scripts: dict[str, str]


def stored_maps(store: Store, groups: Sequence[Group], labels: Mapping[str, str]) -> dict[tuple[str, str], Maps]:
    """The maps of every row's first seed, by data and split, as far as the budget goes."""
    maps: dict[tuple[str, str], Maps] = {}
    budget = BUDGET
    for data_and_split in dict.fromkeys((group.fingerprint, group.split) for group in groups):
        rows = [row for group in groups if (group.fingerprint, group.split) == data_and_split for row in group.rows]
        records = [(row, reading.attention_maps(store, row.keys[0], data_and_split[1])) for row in rows]
        names = Counter(row.model for row in rows)
        shown_labels = {
            key: label for row in rows if names[row.model] > 1 for key in row.keys if (label := labels.get(key))
        }
        ids = sorted({image_id for _, of_row in records for image_id in of_row})
        captions: dict[int, tuple[CaptionAttention, ...]] = {}
        for image_id in ids:
            of_image = tuple(
                CaptionAttention(row.model, shown_labels.get(row.keys[0], ""), _panels(of_row[image_id]))
                for row, of_row in records
                if image_id in of_row
            )
            budget -= sum(50 + len(panel[2]) + 30 * len(panel[3]) for caption in of_image for panel in caption.panels)
            if budget < 0:
                break
            captions[image_id] = of_image
        if captions:
            maps[data_and_split] = captions, len(ids) - len(captions)
    return maps


def attention_pages(
    maps: Mapping[tuple[str, str], Maps], galleries: Mapping[tuple[str, str], GalleryPage]
) -> list[AttentionPage]:
    pages = []
    for index, (data_and_split, (captions, left_out)) in enumerate(maps.items(), start=1):
        gallery = galleries[data_and_split]
        images = tuple(
            (item, captions[item.image_id], f"gallery/looks-{index}-{item.image_id}.js")
            for item in gallery.items
            if item.image_id in captions
        )
        scripts = {
            file: script_call("attention", file, [caption.panels for caption in of_image])
            for _, of_image, file in images
        }
        pages.append(AttentionPage(gallery.attention, gallery, images, left_out, scripts))
    return pages


def _panels(record: AttentionRecord) -> list[Panel]:
    words = zip(map(printable, record.words), record.weights, strict=True)
    sources = zip(record.sources, record.among, strict=True)
    return [
        *([word, *_map_panel(weights, record)] for word, weights in words),
        *(["", *_related(source, weights, record)] for source, weights in sources),
    ]


def _related(source: int, weights: Sequence[float], record: AttentionRecord) -> Panel:
    """A panel of the encoder's attention from a position, which is framed."""
    text, heat, regions = _map_panel(weights, record)
    if record.grid is not None:
        height, width = record.grid
        box = (
            source % width / width,
            source // width / height,
            (source % width + 1) / width,
            (source // width + 1) / height,
        )
    else:
        box = (record.boxes or ())[source]
    unframed = [[*region[:5], 0] for region in regions]
    return [
        f"from the {_place((box[0] + box[2]) / 2, (box[1] + box[3]) / 2)}, {text}",
        heat,
        [*unframed, _region(box, 0.0, True)],
    ]


def _map_panel(weights: Sequence[float], record: AttentionRecord) -> Panel:
    """A panel without its word."""
    largest = max(weights)
    if not largest:
        return ["nowhere", "", []]
    peak = weights.index(largest)
    shares = [weight / largest for weight in weights]
    if record.grid is not None:
        height, width = record.grid
        text = _describe_peak((peak % width + 0.5) / width, (peak // width + 0.5) / height)
        return [text, _heat(shares, width, height), []]
    boxes = record.boxes or ()
    x_min, y_min, x_max, y_max = boxes[peak]
    regions: Panel = []
    for index, (box, share) in enumerate(zip(boxes, shares, strict=True)):
        if share >= _SHOWN:
            regions.append(_region(box, _STRONGEST * share, index == peak))
    return [_describe_peak((x_min + x_max) / 2, (y_min + y_max) / 2), "", regions]


def _heat(shares: Iterable[float], width: int, height: int) -> str:
    """A PNG with one pixel for each grid cell, in one colour; opacity is proportional to the share."""
    from PIL import Image

    pixels = bytearray()
    for share in shares:
        pixels.extend((*_HEAT, round(255 * _STRONGEST * share)))
    target = BytesIO()
    Image.frombytes("RGBA", (width, height), bytes(pixels)).save(target, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(target.getvalue()).decode("ascii")


def _region(box: Sequence[float], opacity: float, framed: bool) -> Panel:
    x1, y1, x2, y2 = (round(100 * min(max(edge, 0.0), 1.0), 1) for edge in box)
    across, down = (round(max(side, 0.0), 1) for side in (x2 - x1, y2 - y1))
    return [x1, y1, across, down, round(opacity, 2), int(framed)]


def _describe_peak(x: float, y: float) -> str:
    position = _place(x, y)
    return "most in the middle" if position == "middle" else f"most at the {position}"


def _place(x: float, y: float) -> str:
    column = ("left", "", "right")[min(max(int(3 * x), 0), 2)]
    row = ("top", "", "bottom")[min(max(int(3 * y), 0), 2)]
    return f"{row} {column}".strip() or "middle"
