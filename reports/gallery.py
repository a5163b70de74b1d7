"""The gallery's contents: pictures, references, and every model's caption with the words that no reference uses.

The hardest images are written out in the page, which reads without a script; all of them are in the data beside it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from reports.gallery_data import disagreement, gallery_data
from reports.pictures import LEFT_OUT, Thumbnails
from results.queries import gallery
from results.store import Store
from results.views import DatasetInfo, GalleryItem, Group

WRITTEN_OUT = 24
MOST_PICTURES = 400
PICTURE_BUDGET = 8_000_000
LONG_CAPTION = 240

_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
# Words that say nothing of the picture by themselves.
FUNCTION_WORDS = frozenset(
    _WORD.findall(
        "a an and are as at be by for from has he her him his in is it its of on one or she some that the their them "
        "there they this to up we while who with you"
    )
)


@dataclass(frozen=True, slots=True)
class Said:
    """One caption: who said it, its CIDEr-D, and its text in pieces, each marked if no reference has it.

    `label` tells rows of one model apart; `rest` is what a very long caption has beyond its first characters.
    """

    name: str
    label: str
    key: str
    reference: bool
    cider: float | None
    pieces: tuple[tuple[str, bool], ...]
    rest: str


@dataclass(frozen=True, slots=True)
class Card:
    """One image that is written out; `picture` is its file, or "" with the reason why there is none."""

    item: GalleryItem
    picture: str
    reason: str
    captions: tuple[Said, ...]


@dataclass(frozen=True, slots=True)
class GalleryPage:
    """One split: its hardest images as `cards`, and the data of all as texts of scripts by file, the index first.

    `total` counts the images of the split, `domains` those of each domain, where there are any.
    """

    file: str
    title: str
    total: int
    cards: tuple[Card, ...]
    data: dict[str, str]
    domains: dict[str, int]


def gallery_pages(
    store: Store, groups: Sequence[Group], datasets: Sequence[DatasetInfo], labels: Mapping[str, str], folder: Path
) -> dict[tuple[str, str], GalleryPage]:
    """One page for every split on the leaderboard, by data and split; the first is `gallery.html`.

    Args:
        labels: what tells runs of one model apart, by key.
        folder: the report's folder; the pictures are written into it.
    """
    known = {dataset.fingerprint: dataset for dataset in datasets}
    pages: dict[tuple[str, str], GalleryPage] = {}
    left = PICTURE_BUDGET
    for fingerprint, split in dict.fromkeys((group.fingerprint, group.split) for group in groups):
        dataset = known[fingerprint]
        number = len(pages) + 1
        items = gallery(store, fingerprint, split)
        thumbnails = Thumbnails(Path(dataset.root), left)
        pictures = _write_pictures(items, thumbnails, folder, f"gallery/{number}-")
        left = thumbnails.left
        data = gallery_data(items, pictures, labels, FUNCTION_WORDS, f"gallery/{number}-")
        cards = tuple(Card(item, *pictures[item.image_id], _captions(item, labels)) for item in items[:WRITTEN_OUT])
        file = f"gallery-{number}.html" if pages else "gallery.html"
        domains = Counter(item.domain for item in items if item.domain is not None)
        title = f"{dataset.name} {split}"
        pages[fingerprint, split] = GalleryPage(file, title, len(items), cards, data, dict(domains))
    return pages


def _write_pictures(
    items: Sequence[GalleryItem], thumbnails: Thumbnails, folder: Path, prefix: str
) -> dict[int, tuple[str, str]]:
    """Pictures of the hardest and of the most disputed images, in turn, as (file, "") or ("", reason) by image id."""
    disputed = sorted(items, key=lambda item: -(disagreement(item) or 0.0))
    wanted = dict.fromkeys(item.image_id for pair in zip(items, disputed, strict=True) for item in pair)
    chosen = set(list(wanted)[:MOST_PICTURES])
    files = {item.image_id: item.file for item in items}
    found = dict.fromkeys(files, ("", LEFT_OUT))
    for image_id in (image_id for image_id in wanted if image_id in chosen):
        picture = thumbnails(files[image_id])
        if picture.content is None:
            found[image_id] = ("", picture.reason)
        else:
            file = f"{prefix}{image_id}{picture.suffix}"
            (folder / file).write_bytes(picture.content)
            found[image_id] = (file, "")
    return found


def _captions(item: GalleryItem, labels: Mapping[str, str]) -> tuple[Said, ...]:
    known = {word for reference in item.references for word in _WORD.findall(reference.lower())}
    names = [said.model for said in item.captions]
    return tuple(
        Said(
            name=said.model,
            label=labels.get(said.key, "") if names.count(said.model) > 1 else "",
            key=said.key,
            reference=said.role == "reference",
            cider=said.cider,
            pieces=_pieces(said.caption[:LONG_CAPTION], known | FUNCTION_WORDS),
            rest=said.caption[LONG_CAPTION:],
        )
        for said in item.captions
    )


def _pieces(caption: str, known: set[str]) -> tuple[tuple[str, bool], ...]:
    """The caption cut into stretches; True for a word that no reference has, function words aside."""
    pieces: list[tuple[str, bool]] = []
    end = 0
    for word in _WORD.finditer(caption):
        if word[0].lower() not in known:
            pieces += [(caption[end : word.start()], False), (word[0], True)]
            end = word.end()
    return (*((text, odd) for text, odd in pieces if text), (caption[end:], False))
