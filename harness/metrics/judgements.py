"""Read human judgements of captions in published formats, and compute how well metrics agree with them.

| form | as of |
|---|---|
| `{IMAGE: {"human_judgement": [{"caption": A, "rating": 1}], "ground_truth": [B]}}` | Flickr8k-Expert, -CF, Composite |
| `{"HC": [{"image": IMAGE, "captions": [A, B], "label": 0, "references": [C]}]}`, 0: A is better | Pascal-50S |
| `{"seg_id": IMAGE, "hyp": A, "human_score": 3.5}` a line; beside them, `{"seg_id": IMAGE, "refs": [B]}` | THumB |
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
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
    """Captions of images and human judgements of them.

    Attributes:
        images, captions, references: of every distinct pair of image and caption.
        ratings: (index of the caption, rating), one for each rating.
        pairs: by kind, (index of the better caption, index of the worse caption).
    """

    images: list[str] = field(default_factory=list)
    captions: list[str] = field(default_factory=list)
    references: list[tuple[str, ...]] = field(default_factory=list)
    ratings: list[tuple[int, float]] = field(default_factory=list)
    pairs: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    _known: dict[tuple[str, str], int] = field(default_factory=dict)

    def add(self, image: str, caption: str, references: Sequence[str]) -> int:
        """Add an image's caption unless it is known, and return its index."""
        index = self._known.setdefault((image, caption), len(self.captions))
        if index == len(self.captions):
            self.images.append(image)
            self.captions.append(caption)
            self.references.append(tuple(references))
        return index

    def rate(self, image: str, caption: Any, references: Any, rating: Any) -> None:
        """Add a rating, unless it is None or not finite, which mean that there is none."""
        if rating is None:
            return
        value = float(rating)
        if math.isfinite(value):
            self.ratings.append((self.add(image, _text(caption), _texts(references)), value))


def read_judgements(path: Path, references: Path | None = None) -> Judgements:
    """Read judgements; THumB's need their `references` too. BenchError for a file in another format."""
    content = read_json_or_lines(path)
    judgements = Judgements()
    try:
        if isinstance(content, list):
            _add_thumb(judgements, content, () if references is None else read_json_or_lines(references))
        elif references is not None:
            raise BenchError(f"--references {references}: {path} has its own", "leave it out")
        elif all(isinstance(entries, list) for entries in content.values()):
            _add_pairs(judgements, content)
        else:
            _add_ratings(judgements, content)
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
        cause = f"{type(error).__name__}: {error}"
        raise BenchError(f"{path} holds no judgements of captions in a known format ({cause})", _FORMS) from error
    if not judgements.captions:
        raise BenchError(f"{path} holds no judgements", _FORMS)
    return judgements


def _add_thumb(judgements: Judgements, lines: Iterable[Any], reference_lines: Iterable[Any]) -> None:
    """Add the ratings of THumB's lines, whose references are in a file of their own."""
    references = {entry["seg_id"]: _texts(entry["refs"]) for entry in reference_lines}
    for entry in lines:
        judgements.rate(str(entry["seg_id"]), entry["hyp"], references[entry["seg_id"]], entry["human_score"])


def _add_pairs(judgements: Judgements, entries_by_kind: Mapping[str, Any]) -> None:
    """Add Pascal-50S's pairs; an entry's "label" is the index of the better of its two captions."""
    for kind, entries in entries_by_kind.items():
        for entry in entries:
            references = _texts(entry["references"])
            pair = [judgements.add(entry["image"], _text(text), references) for text in entry["captions"]]
            label = int(entry["label"])
            judgements.pairs.setdefault(kind, []).append((pair[label], pair[1 - label]))


def _add_ratings(judgements: Judgements, entries_by_image: Mapping[str, Any]) -> None:
    """Add the ratings of Flickr8k's or Composite's images."""
    for image, entry in entries_by_image.items():
        for text in entry["human_judgement"]:
            judgements.rate(image, text["caption"], entry["ground_truth"], text["rating"])


def scores_in_order(path: Path, name: str, judged: Judgements, *, by_position: bool) -> dict[int, float]:
    """A metric's scores by caption index, from a file with one score per rating or per caption, in their order.

    The file must name the images, in the order of the judgements, unless `by_position` is set.
    """
    rows = read_scores(path, name)
    values = [value for _, value in rows]
    is_per_rating = len(values) == len(judged.ratings)
    indices = [index for index, _ in judged.ratings] if is_per_rating else range(len(judged.captions))
    if len(values) != len(indices):
        rated = f", which were rated {len(judged.ratings):,} times" if judged.ratings else ""
        raise BenchError(
            f"{path} has {len(values):,} numbers for {len(judged.captions):,} captions of images{rated}",
            "give one for each, in the order of the judgements",
        )
    expected = [judged.images[index] for index in indices]
    fields = dict.fromkeys(field for row, _ in rows for field in row)
    ids_by_field = {field: [str(row.get(field)) for row, _ in rows] for field in fields}
    if not any(images == expected for images in ids_by_field.values()):
        if any(Counter(images) == Counter(expected) for images in ids_by_field.values()):
            raise BenchError(f"{path} has the images in another order than the judgements", "use their order")
        if not by_position:
            raise BenchError(
                f"{path}: no field has the images of the judgements, such as {', '.join(expected[:3])}",
                "if the numbers are in the order of the judgements, add --by-position",
            )
    return dict(zip(indices, values, strict=True))


def agreements(judged: Judgements, scores: Mapping[str, Mapping[int, float]]) -> dict[str, dict[str, Agreement]]:
    """How well each metric agrees with people.

    For ratings: tau-c, tau-b, and the accuracy over pairs of captions of an image with different mean ratings. For
    pairs: the accuracy over all pairs and over each kind.
    """
    number_of = {image: index for index, image in enumerate(dict.fromkeys(judged.images))}
    images = np.array([number_of[image] for image in judged.images])
    arrays = {
        metric: np.array([by_caption[index] for index in range(len(images))]) for metric, by_caption in scores.items()
    }
    if judged.ratings:
        rated = np.array([n for n, _ in judged.ratings])
        ratings = np.array([rating for _, rating in judged.ratings])
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
        raise ValueError(f"{value!r} is not a caption")
    return value
