"""CIDEr-D on tokenised text, with the references prepared once: fast enough to validate with after every epoch.

Vedantam et al., "CIDEr: Consensus-based Image Description Evaluation", CVPR 2015 (section 5 for the D variant). Equal
to pycocoevalcap's `Cider`, whose settings are: n-grams of order 1 to 4, document frequencies over the references
scored against, counts clipped, a Gaussian penalty on length with sigma 6, times 10. "Length" there counts bigrams.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from harness.metrics.image_ids import require_same_images

MAX_ORDER: Final = 4
SIGMA: Final = 6.0
_SCALE: Final = 10.0

NGram = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Vector:
    """A caption: tf-idf weight by n-gram number, for the n-grams of the references; norm by order; bigram count."""

    weights: dict[int, float]
    norms: list[float]
    length: int


class CiderD:
    """CIDEr-D against fixed references.

    Args:
        references: tokenised references by image id, at least one for each image.

    Document frequencies count the images whose references hold an n-gram. With a single image every score is 0, since
    no n-gram tells it from another. About 3 kB are kept per reference caption.
    """

    def __init__(self, references: Mapping[int, Sequence[str]]) -> None:
        frequency: Counter[NGram] = Counter()
        for texts in references.values():
            frequency.update({ngram for text in texts for ngram in _ngrams(text)})
        # An n-gram that no reference holds weighs as if one image did.
        self._unseen_idf = math.log(len(references)) if references else 0.0
        self._numbers = {ngram: number for number, ngram in enumerate(frequency)}
        self._idf = [self._unseen_idf - math.log(images) for images in frequency.values()]
        self._orders = [len(ngram) for ngram in frequency]
        self._references = {image_id: [self._vector(text) for text in texts] for image_id, texts in references.items()}

    def score(self, candidates: Mapping[int, str]) -> tuple[float, dict[int, float]]:
        """Mean and per-image CIDEr-D of one tokenised caption per image, as fractions (times 100 in papers).

        Raises:
            BenchError: the ids are not those of the references.
        """
        require_same_images(self._references, candidates)
        per_image = {
            image_id: self._score_image(self._vector(candidates[image_id]), against)
            for image_id, against in self._references.items()
        }
        return (sum(per_image.values()) / len(per_image) if per_image else 0.0), per_image

    def _vector(self, text: str) -> _Vector:
        weights: dict[int, float] = {}
        squares = [0.0] * MAX_ORDER
        length = 0
        for ngram, count in Counter(_ngrams(text)).items():
            number = self._numbers.get(ngram)
            if number is None:
                weight = count * self._unseen_idf
            else:
                weight = weights[number] = count * self._idf[number]
            squares[len(ngram) - 1] += weight * weight
            if len(ngram) == 2:
                length += count
        return _Vector(weights, [math.sqrt(square) for square in squares], length)

    def _score_image(self, caption: _Vector, references: Sequence[_Vector]) -> float:
        total = 0.0
        for reference in references:
            products = [0.0] * MAX_ORDER
            for number, weight in caption.weights.items():
                if number in reference.weights:
                    reference_weight = reference.weights[number]
                    products[self._orders[number] - 1] += min(weight, reference_weight) * reference_weight
            penalty = math.exp(-((caption.length - reference.length) ** 2) / (2 * SIGMA**2))
            for product, norm, reference_norm in zip(products, caption.norms, reference.norms, strict=True):
                if norm > 0 and reference_norm > 0:
                    total += product / (norm * reference_norm) * penalty
        return _SCALE * total / MAX_ORDER / len(references)


def corpus_cider(
    references: Mapping[int, Sequence[str]], candidates: Mapping[int, str]
) -> tuple[float, dict[int, float]]:
    """Mean and per-image CIDEr-D of tokenised `candidates`; to score many against the same references use `CiderD`.

    Raises:
        BenchError: the ids differ.
    """
    return CiderD(references).score(candidates)


def _ngrams(text: str) -> Iterator[NGram]:
    words = tuple(text.split())
    for order in range(1, MAX_ORDER + 1):
        for start in range(len(words) - order + 1):
            yield words[start : start + order]
