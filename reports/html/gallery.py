"""The gallery's contents: pictures, references, and every model's caption with the words that no reference uses.

The hardest images are written out in the page, which reads without a script; all of them are in the data beside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from reports.html.gallery_data import disagreement, gallery_data
from reports.html.pictures import LEFT_OUT, Thumbnails
from reports.html.words import pieces, stems
from results.runs.gallery import GalleryItem, gallery
from results.runs.leaderboard import Group
from results.runs.run import DatasetInfo, Run
from results.store.store import Store

WRITTEN_OUT = 24
MAX_PICTURES = 400
PICTURE_BUDGET = 8_000_000
LONG_CAPTION = 240


@dataclass(frozen=True, slots=True)
class ShownCaption:
    """One caption: its model, its CIDEr-D, and its text in pieces, each marked if no reference
    has a form of it.

    `label` distinguishes rows of one model; `rest` is what a very long caption has beyond its first characters.
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
    """One image that is written out.

    `picture` is its file, or "" with the reason why there is none; `attention` the page of its captions'
    attention maps, "" where none are stored.
    """

    item: GalleryItem
    picture: str
    reason: str
    captions: tuple[ShownCaption, ...]
    attention: str


@dataclass(frozen=True, slots=True)
class GalleryPage:
    """One split: its hardest images as `cards`, and the data of all as texts of scripts by file, the index first.

    Both are empty where the store has no caption of the split, as in a published copy.
    `items` are all images of the split, `pictures` theirs as (file, "") or ("", reason) by image id, `domains` counts
    those of each domain, where there are any. `attention` is the page of those that have attention maps, or "".
    """

    file: str
    title: str
    items: tuple[GalleryItem, ...]
    pictures: dict[int, tuple[str, str]]
    cards: tuple[Card, ...]
    data: dict[str, str]
    domains: dict[str, int]
    attention: str

    @property
    def total(self) -> int:
        """How many images the split has."""
        return len(self.items)


def gallery_pages(
    store: Store,
    groups: Sequence[Group],
    datasets: Sequence[DatasetInfo],
    labels: Mapping[str, str],
    mapped: Mapping[tuple[str, str], Collection[int]],
    folder: Path,
    runs: Sequence[Run] | None = None,
) -> dict[tuple[str, str], GalleryPage]:
    """One page for every split on the leaderboard, by data and split; the first is `gallery.html`.

    Args:
        labels: what distinguishes runs of one model, by key.
        mapped: images that have attention maps, by data and split.
        folder: the report's folder; the pictures are written into it.
        runs: all finished runs, where they have been read already.
    """
    known = {dataset.fingerprint: dataset for dataset in datasets}
    pages: dict[tuple[str, str], GalleryPage] = {}
    left = PICTURE_BUDGET
    for fingerprint, split in dict.fromkeys((group.fingerprint, group.split) for group in groups):
        dataset = known[fingerprint]
        number = len(pages) + 1
        items = gallery(store, fingerprint, split, runs)
        thumbnails = Thumbnails(Path(dataset.root), left)
        shown = items if any(item.captions for item in items) else []
        attended = mapped.get((fingerprint, split), ())
        pictures = _write_pictures(shown, attended, thumbnails, folder, f"gallery/{number}-")
        left = thumbnails.left
        suffix = f"-{number}" if pages else ""
        attention = f"gallery-attention{suffix}.html" if attended else ""
        data = gallery_data(shown, pictures, labels, f"gallery/{number}-", (attention, attended)) if shown else {}
        cards = tuple(
            Card(
                item,
                *pictures[item.image_id],
                captions=_captions(item, labels),
                attention=attention if item.image_id in attended else "",
            )
            for item in shown[:WRITTEN_OUT]
        )
        domains = Counter(item.domain for item in items if item.domain is not None)
        pages[fingerprint, split] = GalleryPage(
            file=f"gallery{suffix}.html",
            title=f"{dataset.name} {split}",
            items=tuple(items),
            pictures=pictures,
            cards=cards,
            data=data,
            domains=dict(domains),
            attention=attention,
        )
    return pages


def _write_pictures(
    items: Sequence[GalleryItem], first: Iterable[int], thumbnails: Thumbnails, folder: Path, prefix: str
) -> dict[int, tuple[str, str]]:
    """Pictures as (file, "") or ("", reason) by image id: of the `first`, then of the hardest and most disputed."""
    disputed = sorted(items, key=lambda item: -(disagreement(item) or 0.0))
    turns = (item.image_id for pair in zip(items, disputed, strict=True) for item in pair)
    wanted = dict.fromkeys((*first, *turns))
    chosen = set(list(wanted)[:MAX_PICTURES])
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


def _captions(item: GalleryItem, labels: Mapping[str, str]) -> tuple[ShownCaption, ...]:
    known = stems(item.references)
    names = [caption.model for caption in item.captions]
    return tuple(
        ShownCaption(
            name=caption.model,
            label=labels.get(caption.key, "") if names.count(caption.model) > 1 else "",
            key=caption.key,
            reference=caption.role == "reference",
            cider=caption.cider,
            pieces=pieces(caption.caption[:LONG_CAPTION], known),
            rest=caption.caption[LONG_CAPTION:],
        )
        for caption in item.captions
    )
