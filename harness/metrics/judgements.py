"""Captions that people judged: read in the forms that are published, and how far metrics agree with the people.

| form | as of |
|---|---|
| `{IMAGE: {"human_judgement": [{"caption": A, "rating": 1}], "ground_truth": [B]}}` | Flickr8k-Expert, -CF, Composite |
| `{"HC": [{"image": IMAGE, "captions": [A, B], "label": 0, "references": [C]}]}`, 0: A is better | Pascal-50S |
| `{"seg_id": IMAGE, "hyp": A, "human_score": 3.5}` a line; beside them, `{"seg_id": IMAGE, "refs": [B]}` | THumB |
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from harness.data.formats.predictions import read_scores
from harness.utils.errors import BenchError
from harness.utils.json_io import read_json_or_lines
from results.statistics.agreement import ACCURACY, Agreement, pairs_of_images, pairwise_accuracy, taus

_FORMS: Final = (
    "give Flickr8k's or Composite's judgements as JSON, Pascal-50S's pairs, or THumB's lines with --references"
)


@dataclass
class Judgements:
    """Captions of images, each pair of both once, with the image's references, and what people said of them.

    `ratings` are (caption, rating), one for each time that one was rated; `pairs` by kind (better caption, worse one).
    """

    images: list[str] = field(default_factory=list)
    captions: list[str] = field(default_factory=list)
    references: list[tuple[str, ...]] = field(default_factory=list)
    ratings: list[tuple[int, float]] = field(default_factory=list)
    pairs: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    _known: dict[tuple[str, str], int] = field(default_factory=dict)

    def add(self, image: str, caption: str, references: Sequence[str]) -> int:
        """The number of a caption of an image."""
        number = self._known.setdefault((image, caption), len(self.captions))
        if number == len(self.captions):
            self.images.append(image)
            self.captions.append(caption)
            self.references.append(tuple(references))
        return number

    def rate(self, image: str, caption: Any, references: Any, rating: Any) -> None:
        """Note a rating; one that is no finite number was never given."""
        if rating is not None and math.isfinite(number := float(rating)):
            self.ratings.append((self.add(image, _text(caption), _texts(references)), number))


def read_judgements(path: Path, references: Path | None = None) -> Judgements:
    """Read judgements, of THumB's captions with their `references`; BenchError for a file of another form."""
    content, found = read_json_or_lines(path), Judgements()
    try:
        if isinstance(content, list):
            told = () if references is None else read_json_or_lines(references)
            beside = {entry["seg_id"]: _texts(entry["refs"]) for entry in told}
            for entry in content:
                found.rate(str(entry["seg_id"]), entry["hyp"], beside[entry["seg_id"]], entry["human_score"])
        elif references is not None:
            raise BenchError(f"--references {references}: {path} has its own", "leave it out")
        elif all(isinstance(entries, list) for entries in content.values()):
            for kind, entry in ((kind, entry) for kind, entries in content.items() for entry in entries):
                references_of = _texts(entry["references"])
                both = [found.add(entry["image"], _text(said), references_of) for said in entry["captions"]]
                label = int(entry["label"])
                found.pairs.setdefault(kind, []).append((both[label], both[1 - label]))
        else:
            for image, entry in content.items():
                for said in entry["human_judgement"]:
                    found.rate(image, said["caption"], entry["ground_truth"], said["rating"])
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
        lacking = f"{type(error).__name__}: {error}"
        raise BenchError(f"{path} holds no judgements of captions that are known here ({lacking})", _FORMS) from error
    if not found.captions:
        raise BenchError(f"{path} holds no judgements", _FORMS)
    return found


def scores_in_order(path: Path, name: str, judged: Judgements, *, by_position: bool) -> dict[int, float]:
    """Numbers of a metric by caption, from a file with one for each rating or caption in the judgements' order.

    Where an image has several captions, that order alone says which is meant: the file names the images in it, or
    `by_position` says that it does.
    """
    read = read_scores(path, name)
    values = [value for _, value in read]
    each = len(values) == len(judged.ratings)
    numbers = [number for number, _ in judged.ratings] if each else range(len(judged.captions))
    if len(values) != len(numbers):
        rated = f", which were rated {len(judged.ratings):,} times" if judged.ratings else ""
        raise BenchError(
            f"{path} has {len(values):,} numbers for {len(judged.captions):,} captions of images{rated}",
            "give one for each, in the order of the judgements",
        )
    expected = [judged.images[number] for number in numbers]
    fields = dict.fromkeys(field for row, _ in read for field in row)
    named = {field: [str(row.get(field)) for row, _ in read] for field in fields}
    if not any(images == expected for images in named.values()):
        if any(Counter(images) == Counter(expected) for images in named.values()):
            raise BenchError(f"{path} names the images in another order than the judgements", "sort it as they are")
        if not by_position:
            raise BenchError(
                f"{path}: nothing names the images of the judgements, such as {', '.join(expected[:3])}",
                "where the numbers are in the order of the judgements, add --by-position",
            )
    return dict(zip(numbers, values, strict=True))


def agreements(judged: Judgements, scores: Mapping[str, Mapping[int, float]]) -> dict[str, dict[str, Agreement]]:
    """How far each metric agrees with people: of ratings tau-c, tau-b and the accuracy of pairs of one image that were
    rated apart on average; of pairs the accuracy, of all and of each kind.
    """
    known = {image: number for number, image in enumerate(dict.fromkeys(judged.images))}
    images = np.array([known[image] for image in judged.images])
    arrays = {metric: np.array([of[number] for number in range(len(images))]) for metric, of in scores.items()}
    if judged.ratings:
        rated, ratings = np.array([n for n, _ in judged.ratings]), np.array([rating for _, rating in judged.ratings])
        pairs = pairs_of_images(np.bincount(rated, ratings) / np.bincount(rated), images)
        return {
            metric: taus(values[rated], ratings, images[rated]) | {ACCURACY: pairwise_accuracy(values, *pairs)}
            for metric, values in arrays.items()
        }
    kinds = {kind: np.array(pairs).T for kind, pairs in judged.pairs.items()}
    kinds = {ACCURACY: np.concatenate(list(kinds.values()), axis=1), **kinds}
    return {
        metric: {kind: pairwise_accuracy(values, pair[0], pair[1], images[pair[0]]) for kind, pair in kinds.items()}
        for metric, values in arrays.items()
    }


def _texts(values: Any) -> tuple[str, ...]:
    return tuple(map(_text, values)) if isinstance(values, list | tuple) else (_text(values),)


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{value!r} is no caption")
    return value
