"""All images of a split as small scripts, which a page may load from disk where it may not fetch anything.

Words that occur more than once are numbers in base 36, and captions that several models give are there once. Images
come hardest first, some of them a file.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from reports.html.pages import run_page
from reports.html.words import FUNCTION_WORDS, forms
from reports.tables.numbers import percent, printable
from results.runs.gallery import GalleryItem

IMAGES_A_FILE = 200
LONGEST_WORD = 40
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def gallery_data(
    items: Sequence[GalleryItem],
    pictures: Mapping[int, tuple[str, str]],
    labels: Mapping[str, str],
    prefix: str,
    attention: tuple[str, Collection[int]] = ("", ()),
) -> dict[str, str]:
    """The scripts by file: the index first, then the images.

    The index names `speakers`, `words`, `forms` (words of one stem), and of each image its id, its mean CIDEr-D and its
    disagreement. Each image is [file, domain, picture, why it has none, references, captions, which of the captions
    each speaker gave (-1: none), CIDEr-D of each speaker times 1000 or null]. `attention` is a page, and which images
    it shows.
    """
    speakers = {caption.key: caption for item in items for caption in item.captions}
    names = Counter(caption.model for caption in speakers.values())
    words = _dictionary(items)
    codes = {word: _base36(number) for number, word in enumerate(words)}
    places = {key: place for place, key in enumerate(speakers)}
    index = {
        "prefix": prefix,
        "size": IMAGES_A_FILE,
        "functionWords": sorted(FUNCTION_WORDS),
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
        "words": words,
        "forms": forms(
            text for item in items for text in (*item.references, *(each.caption for each in item.captions))
        ),
    }
    files = {f"{prefix}index.js": script_call("index", index)}
    for number, start in enumerate(range(0, len(items), IMAGES_A_FILE)):
        images = [_image(item, pictures, codes, places) for item in items[start : start + IMAGES_A_FILE]]
        files[f"{prefix}{number}.js"] = script_call("images", number, images)
    return files


def disagreement(item: GalleryItem) -> float | None:
    """How far the models' CIDEr-D of one image are apart: their standard deviation; None of fewer than two."""
    known = [caption.cider for caption in item.captions if caption.role == "model" and caption.cider is not None]
    if len(known) < 2:
        return None
    mean = math.fsum(known) / len(known)
    return math.sqrt(math.fsum((cider - mean) ** 2 for cider in known) / len(known))


def _dictionary(items: Iterable[GalleryItem]) -> list[str]:
    """Words that are worth a number, the most frequent first."""
    counted: Counter[str] = Counter()
    for item in items:
        for text in (*item.references, *(caption.caption for caption in item.captions)):
            counted.update(printable(text).split(" "))
    return [word for word, times in counted.most_common() if times > 1 and 0 < len(word) <= LONGEST_WORD]


def _image(
    item: GalleryItem, pictures: Mapping[int, tuple[str, str]], codes: Mapping[str, str], places: Mapping[str, int]
) -> list[Any]:
    texts = list(dict.fromkeys(caption.caption for caption in item.captions))
    numbers = {text: number for number, text in enumerate(texts)}
    which = [-1] * len(places)
    scores: list[int | None] = [None] * len(places)
    for caption in item.captions:
        which[places[caption.key]] = numbers[caption.caption]
        scores[places[caption.key]] = _rounded(caption.cider)
    return [
        printable(item.file),
        printable(item.domain or ""),
        *pictures[item.image_id],
        [_coded(text, codes) for text in item.references],
        [_coded(text, codes) for text in texts],
        which,
        scores,
    ]


def _coded(text: str, codes: Mapping[str, str]) -> str:
    """The text's words as their numbers; one without a number is itself after an equals sign."""
    return " ".join(codes.get(word) or f"={word}" for word in printable(text).split(" "))


def _base36(number: int) -> str:
    digits = ""
    while number >= 36:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    return _DIGITS[number] + digits


def _rounded(value: float | None) -> int | None:
    """A score times 1000, of the digits that pages show."""
    return None if value is None else round(10 * float(percent(value)))


def script_call(function: str, *arguments: object) -> str:
    """A script that hands data to the page's own: nothing but JSON, in which no text ends the script."""
    written = ",".join(json.dumps(argument, ensure_ascii=False, separators=(",", ":")) for argument in arguments)
    escaped = written.replace("<", "\\u003c")  # inside a page too, no text ends the script or begins another
    return f"captionbench.{function}({escaped});\n"
