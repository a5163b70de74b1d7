"""The gallery's contents: pictures, references, and every model's caption with the words that no reference uses."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from reports.pictures import Picture, Thumbnails
from results.queries import gallery
from results.store import Store
from results.views import DatasetInfo, GalleryItem, Group

MOST_IMAGES = 120
PICTURE_BUDGET = 8_000_000
LONG_CAPTION = 240

_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
# Words that say nothing of the picture by themselves.
_FUNCTION_WORDS = frozenset(
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
    """One image of the gallery."""

    item: GalleryItem
    picture: Picture
    captions: tuple[Said, ...]


@dataclass(frozen=True, slots=True)
class GalleryPage:
    """The hardest images of one split; `total` counts the images of the split."""

    file: str
    title: str
    total: int
    cards: tuple[Card, ...]


def gallery_pages(
    store: Store, groups: Sequence[Group], datasets: Sequence[DatasetInfo], labels: Mapping[str, str]
) -> list[GalleryPage]:
    """One page for every split on the leaderboard, in its order; the first is `gallery.html`.

    `labels` tells runs of one model apart, by key.
    """
    known = {dataset.fingerprint: dataset for dataset in datasets}
    pages: list[GalleryPage] = []
    left = PICTURE_BUDGET
    for fingerprint, split in dict.fromkeys((group.fingerprint, group.split) for group in groups):
        dataset = known[fingerprint]
        items = gallery(store, fingerprint, split, limit=MOST_IMAGES)
        thumbnails = Thumbnails(Path(dataset.root), left)
        cards = tuple(Card(item, thumbnails(item.file), _captions(item, labels)) for item in items)
        left = thumbnails.left
        file = f"gallery-{len(pages) + 1}.html" if pages else "gallery.html"
        pages.append(GalleryPage(file, f"{dataset.name} {split}", dataset.evaluated.get(split, 0), cards))
    return pages


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
            pieces=_pieces(said.caption[:LONG_CAPTION], known | _FUNCTION_WORDS),
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
