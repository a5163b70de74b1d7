"""The gallery: images, references, and every model's caption with the words that no reference uses.

The page itself contains the hardest images, so that it can be read without scripts. All images are in small scripts,
because a page that is opened from disk can load scripts but not fetch data. In them, words that occur more than once
are numbers in base 36, captions that several models give are stored once, and the hardest images come first.
"""

from __future__ import annotations

import json
import re
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import snowballstemmer

from reports.html.rendering import run_page
from reports.numbers import percent
from reports.tables.contents import Contents
from results.runs.facts import KINDS
from results.runs.gallery import GalleryItem, gallery
from results.runs.run import DatasetInfo
from results.store.store import Store
from results.text import printable

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

WRITTEN_OUT = 24
MAX_PICTURES = 400
PICTURE_BUDGET = 8_000_000
LONG_CAPTION = 240
IMAGES_A_FILE = 200
LONGEST_WORD = 40
SMALL_FILE = 12 * 1024
LONGEST_SIDE = 320
LARGEST_AS_IT_IS = 1024
LEFT_OUT = "left out to keep the report small"
NO_FOLDER = "the folder of the files is not known"
MAX_PIXELS = 64_000_000

# Formats that Pillow decodes itself, without starting other programs.
_FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF", "PPM")
_SHOWN_BY_BROWSERS = {"PNG": ".png", "JPEG": ".jpg", "GIF": ".gif", "WEBP": ".webp"}
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
# Words without content of their own.
_FUNCTION_WORDS = frozenset(
    _WORD.findall(
        "a an and are as at be by for from has he her him his in is it its of on one or she some that the their them "
        "there they this to up we while who with you"
    )
)
_IRREGULAR = {
    "men": "man",
    "women": "woman",
    "children": "child",
    "people": "person",
    "feet": "foot",
    "teeth": "tooth",
    "mice": "mouse",
    "geese": "goose",
    "knives": "knife",
    "leaves": "leaf",
    "wives": "wife",
    "buses": "bus",
    "scarves": "scarf",
    "shelves": "shelf",
    "wolves": "wolf",
}
# British spellings, as parts of words in any form, with the American ones.
_SPELLINGS = {
    "aeroplane": "airplane",
    "analys": "analyz",
    "armour": "armor",
    "barbeque": "barbecue",
    "behaviour": "behavior",
    "calibre": "caliber",
    "catalogue": "catalog",
    "centred": "centered",
    "centre": "center",
    "chequer": "checker",
    "cheque": "check",
    "colour": "color",
    "cosy": "cozy",
    "defence": "defense",
    "doughnut": "donut",
    "draught": "draft",
    "favour": "favor",
    "fibre": "fiber",
    "flavour": "flavor",
    "grey": "gray",
    "harbour": "harbor",
    "honour": "honor",
    "humour": "humor",
    "jewellery": "jewelry",
    "kerb": "curb",
    "labell": "label",
    "labour": "labor",
    "licence": "license",
    "litre": "liter",
    "metre": "meter",
    "modell": "model",
    "mould": "mold",
    "moustache": "mustache",
    "neighbour": "neighbor",
    "omelette": "omelet",
    "organis": "organiz",
    "panell": "panel",
    "parlour": "parlor",
    "pedall": "pedal",
    "plough": "plow",
    "pyjama": "pajama",
    "recognis": "recogniz",
    "sabre": "saber",
    "sceptic": "skeptic",
    "storey": "story",
    "sulphur": "sulfur",
    "theatre": "theater",
    "travell": "travel",
    "tyre": "tire",
    "vapour": "vapor",
    "whiskey": "whisky",
    "woollen": "woolen",
    "yoghurt": "yogurt",
}
_BRITISH = re.compile("|".join(_SPELLINGS))
_STEMMER = snowballstemmer.stemmer("english")


@dataclass(frozen=True, slots=True)
class PictureSource:
    """The folder that images may be copied from: `folder`, or each data set's folder in the database.

    A database from somebody else could name any folder of this machine, so `recorded` is False for it.
    """

    folder: Path | None = None
    recorded: bool = True

    def root(self, dataset: DatasetInfo) -> Path | None:
        """The folder of a data set's images; None if it is not known."""
        if self.folder is not None:
            return self.folder
        return Path(dataset.root) if self.recorded else None


RECORDED = PictureSource()


@dataclass(frozen=True, slots=True)
class GalleryPage:
    """One split: all its images, the hardest first, those on the page itself as `cards`, and the scripts by file.

    `cards` and `data` are empty if the store has no caption of the split, as in a published copy; then no page is
    written. `pictures` are (file, "") or ("", reason) by image id, `labels` distinguish runs of one model. `attention`
    is the page of the images that have attention maps, or "". `without_pictures` is the reason if no image is shown.
    """

    file: str
    title: str
    items: Sequence[GalleryItem]
    pictures: Mapping[int, tuple[str, str]]
    cards: Sequence[GalleryItem]
    data: Mapping[str, str]
    labels: Mapping[str, str]
    attention: str
    without_pictures: str = ""
    attended: Collection[int] = ()

    @property
    def kinds(self) -> list[str]:
        """The kinds of facts of which some caption says something wrong."""
        wrong = {caption.wrong or 0 for item in self.items for caption in item.captions}
        return [kind for bit, kind in enumerate(KINDS) if any(bits >> bit & 1 for bits in wrong)]

    @property
    def domains(self) -> dict[str, int]:
        return Counter(item.domain for item in self.items if item.domain is not None)


def gallery_pages(
    store: Store,
    contents: Contents,
    labels: Mapping[str, str],
    mapped: Mapping[tuple[str, str], Collection[int]],
    folder: Path,
    source: PictureSource,
) -> dict[tuple[str, str], GalleryPage]:
    """A page for every split on the leaderboard, by data and split; the first with captions is `gallery.html`."""
    datasets = {dataset.fingerprint: dataset for dataset in contents.datasets}
    pages: dict[tuple[str, str], GalleryPage] = {}
    budget = PICTURE_BUDGET
    places = dict.fromkeys((group.fingerprint, group.split) for group in contents.groups)
    for index, (fingerprint, split) in enumerate(places, start=1):
        dataset = datasets[fingerprint]
        prefix = f"gallery/{index}-"
        items = gallery(store, fingerprint, split, contents.finished)
        captioned = items if any(item.captions for item in items) else []
        attended = mapped.get((fingerprint, split), ())
        pictures, budget = _write_pictures(captioned, attended, source.root(dataset), budget, folder, prefix)
        without = "" if any(file for file, _ in pictures.values()) else _why_none(pictures)
        if without:
            pictures = dict.fromkeys(pictures, ("", ""))  # the page states the reason once for all images
        suffix = f"-{index}" if any(page.data for page in pages.values()) else ""
        attention = f"gallery-attention{suffix}.html" if attended else ""
        data = gallery_data(captioned, pictures, labels, prefix, (attention, attended)) if captioned else {}
        pages[fingerprint, split] = GalleryPage(
            file=f"gallery{suffix}.html",
            title=f"{dataset.name} {split}",
            items=items,
            pictures=pictures,
            cards=captioned[:WRITTEN_OUT],
            data=data,
            labels=labels,
            attention=attention,
            without_pictures=without,
            attended=attended,
        )
    return pages


def gallery_data(
    items: Sequence[GalleryItem],
    pictures: Mapping[int, tuple[str, str]],
    labels: Mapping[str, str],
    prefix: str,
    attention: tuple[str, Collection[int]] = ("", ()),
) -> dict[str, str]:
    """The scripts by file: the index first, then the images.

    Each image is [file, domain, picture, reason if it has none, references, captions, the index of each speaker's
    caption (-1: none), CIDEr-D of each speaker times 1000 or null, false facts of each speaker as bits, one for each of
    the index's `kinds`]. `attention` is a page and the images that it shows.
    """
    speakers = {caption.key: caption for item in items for caption in item.captions}
    names = Counter(caption.model for caption in speakers.values())
    texts: list[str] = []
    for item in items:
        texts += item.references
        texts += [caption.caption for caption in item.captions]
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(printable(text).split(" "))
    words = [word for word, count in counts.most_common() if count > 1 and 0 < len(word) <= LONGEST_WORD]
    codes = {word: np.base_repr(number, 36).lower() for number, word in enumerate(words)}
    columns = {key: column for column, key in enumerate(speakers)}
    index = {
        "prefix": prefix,
        "size": IMAGES_A_FILE,
        "functionWords": sorted(_FUNCTION_WORDS),
        "speakers": [
            {
                "name": printable(caption.model),
                "label": printable(labels.get(key, "")) if names[caption.model] > 1 else "",
                "page": run_page(key),
                "reference": caption.role == "reference",
            }
            for key, caption in speakers.items()
        ],
        "images": [[item.image_id, _rounded(item.mean_cider), _rounded(disagreement(item))] for item in items],
        "attention": [attention[0], sorted(attention[1])],
        "kinds": KINDS if any(caption.wrong is not None for item in items for caption in item.captions) else [],
        "words": words,
        "forms": forms(texts),
    }
    files = {f"{prefix}index.js": script_call("index", index)}
    for file_number, start in enumerate(range(0, len(items), IMAGES_A_FILE)):
        images = [_image(item, pictures, codes, columns) for item in items[start : start + IMAGES_A_FILE]]
        files[f"{prefix}{file_number}.js"] = script_call("images", file_number, images)
    return files


def script_call(function: str, *arguments: object) -> str:
    """A script that passes JSON data to a function of the page's script."""
    content = ",".join(json.dumps(argument, ensure_ascii=False, separators=(",", ":")) for argument in arguments)
    escaped = content.replace("<", "\\u003c")  # within a page, "</script" in a text would end the script
    return f"captionbench.{function}({escaped});\n"


def disagreement(item: GalleryItem) -> float | None:
    """The standard deviation of the models' CIDEr-D of one image; None for fewer than two."""
    ciders = [caption.cider for caption in item.captions if caption.role == "model" and caption.cider is not None]
    return float(np.std(ciders)) if len(ciders) > 1 else None


@cache
def stem(word: str) -> str:
    """The stem of a word in any case and spelling, by Snowball's English stemmer, which METEOR uses too."""
    lower = _BRITISH.sub(lambda match: _SPELLINGS[match[0]], word.lower())
    return str(_STEMMER.stemWord(_IRREGULAR.get(lower, lower)))


def stems(texts: Iterable[str]) -> frozenset[str]:
    return frozenset(stem(word) for text in texts for word in _WORD.findall(text))


def forms(texts: Iterable[str]) -> list[list[str]]:
    """Groups of lower-case words with the same stem; words that share theirs with no other are left out."""
    words_by_stem: dict[str, dict[str, None]] = {}
    for word in dict.fromkeys(word.lower() for text in dict.fromkeys(texts) for word in _WORD.findall(text)):
        words_by_stem.setdefault(stem(word), {})[word] = None
    return [list(words) for words in words_by_stem.values() if len(words) > 1]


def pieces(caption: str, known_stems: frozenset[str]) -> tuple[tuple[str, bool], ...]:
    """The caption in pieces; True for a word whose stem is not known, except for function words."""
    stretches: list[tuple[str, bool]] = []
    end = 0
    for word in _WORD.finditer(caption):
        if word[0].lower() not in _FUNCTION_WORDS and stem(word[0]) not in known_stems:
            stretches += [(caption[end : word.start()], False), (word[0], True)]
            end = word.end()
    return (*((text, odd) for text, odd in stretches if text), (caption[end:], False))


def _write_pictures(
    items: Sequence[GalleryItem], first: Iterable[int], root: Path | None, budget: int, folder: Path, prefix: str
) -> tuple[dict[int, tuple[str, str]], int]:
    """Write images, beginning with `first`, the hardest and the most disputed, as far as the budget goes.

    Returns:
        (file, "") or ("", reason) by image id, and the bytes left of the budget.
    """
    disputed = sorted(items, key=lambda item: -(disagreement(item) or 0.0))
    in_turn = (item.image_id for pair in zip(items, disputed, strict=True) for item in pair)
    chosen_ids = list(dict.fromkeys((*first, *in_turn)))[:MAX_PICTURES]
    files = {item.image_id: item.file for item in items}
    if root is None:
        return dict.fromkeys(files, ("", NO_FOLDER)), budget
    pictures = dict.fromkeys(files, ("", LEFT_OUT))
    for image_id in chosen_ids:
        content, suffix_or_reason = thumbnail(root, files[image_id])
        if content is None:
            pictures[image_id] = ("", suffix_or_reason)
        elif len(content) <= budget:
            budget -= len(content)
            file = f"{prefix}{image_id}{suffix_or_reason}"
            (folder / file).write_bytes(content)
            pictures[image_id] = (file, "")
    return pictures, budget


def _why_none(pictures: Mapping[int, tuple[str, str]]) -> str:
    """The reasons why no image is shown, the commonest first; "" if there are no images."""
    reasons = Counter(reason for _, reason in pictures.values())
    if len(reasons) > 1:
        del reasons[LEFT_OUT]  # of images that were not tried after the others
    return f"No picture is shown: {'; '.join(reason for reason, _ in reasons.most_common())}" if reasons else ""


def _image(
    item: GalleryItem, pictures: Mapping[int, tuple[str, str]], codes: Mapping[str, str], places: Mapping[str, int]
) -> list[Any]:
    texts = list(dict.fromkeys(caption.caption for caption in item.captions))
    which = [-1] * len(places)
    wrong = [0] * len(places)
    scores: list[int | None] = [None] * len(places)
    for caption in item.captions:
        column = places[caption.key]
        which[column] = texts.index(caption.caption)
        scores[column] = _rounded(caption.cider)
        wrong[column] = caption.wrong or 0

    def coded(text: str) -> str:
        """The text's words as numbers; a word without a number follows an equals sign."""
        return " ".join(codes.get(word) or f"={word}" for word in printable(text).split(" "))

    described = [printable(item.file), printable(item.domain or ""), *pictures[item.image_id]]
    texts_coded = [list(map(coded, item.references)), list(map(coded, texts))]
    return [*described, *texts_coded, which, scores, wrong if any(wrong) else []]


def _rounded(value: float | None) -> int | None:
    """A score times 1000, with the digits that pages show."""
    return None if value is None else round(10 * float(percent(value)))


def thumbnail(root: Path, file: str) -> tuple[bytes | None, str]:
    """An image's bytes and suffix; None and the reason if it is outside the root or cannot be read."""
    try:
        path = (root / file).resolve()
        if not path.is_relative_to(root.resolve()):
            return None, "the file lies outside the data set's folder"
        if not path.is_file():
            return None, "the file is not there"
        return _read(path)
    except Exception as error:  # Pillow's decoders raise many types of errors on damaged data
        return None, f"the picture cannot be read ({type(error).__name__})"


def _read(path: Path) -> tuple[bytes, str]:
    """Bytes and suffix of an image: a small file that browsers can show is kept, any other is shrunk."""
    from PIL import Image

    with warnings.catch_warnings(action="error", category=Image.DecompressionBombWarning):
        opened = Image.open(path, formats=_FORMATS)
    with opened:
        if opened.width * opened.height > MAX_PIXELS:
            raise ValueError(f"{opened.width} x {opened.height} pixels")
        suffix = _SHOWN_BY_BROWSERS.get(str(opened.format))
        if suffix and path.stat().st_size <= SMALL_FILE and max(opened.size) <= LARGEST_AS_IT_IS:
            return path.read_bytes(), suffix
        return _shrink(opened), ".jpg"


def _shrink(opened: ImageFile) -> bytes:
    """A JPEG of at most `LONGEST_SIDE` pixels, upright; transparent pixels become white."""
    from PIL import Image, ImageOps

    opened.draft("RGB", (2 * LONGEST_SIDE, 2 * LONGEST_SIDE))
    picture: Image.Image = ImageOps.exif_transpose(opened)
    if picture.mode.startswith("I"):
        # 16-bit grey: Pillow would clip everything above 255 to white.
        picture = picture.convert("I").point(lambda value: value / 256).convert("L")
    picture.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
    if picture.has_transparency_data:
        picture = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture)
    target = BytesIO()
    picture.convert("RGB").save(target, "JPEG", quality=80)
    return target.getvalue()
