"""CIDEr-D on tokenised text, with the references prepared once: fast enough to validate with after every epoch.

Vedantam et al., "CIDEr: Consensus-based Image Description Evaluation", CVPR 2015 (section 5 for the D variant). Equal
to pycocoevalcap's `Cider`, whose settings are: n-grams of order 1 to 4, document frequencies over the references
scored against, counts clipped, a Gaussian penalty on length with sigma 6, times 10. "Length" there counts bigrams.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from harness.metrics.image_ids import require_same_images

MAX_ORDER: Final = 4
SIGMA: Final = 6.0
_SCALE: Final = 10.0

NGram = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _References:
    """One image's references: per n-gram the (reference, weight) pairs it occurs in; norms by reference and order."""

    weights: dict[NGram, list[tuple[int, float]]]
    norms: list[list[float]]
    lengths: list[int]


class CiderD:
    """CIDEr-D against fixed references.

    Args:
        references: tokenised references by image id, at least one for each image.

    Document frequencies count the images whose references hold an n-gram. With a single image every score is 0, since
    no n-gram tells it from another.
    """

    def __init__(self, references: Mapping[int, Sequence[str]]) -> None:
        counts = {image_id: [_ngrams(text) for text in texts] for image_id, texts in references.items()}
        frequency: Counter[NGram] = Counter()
        for texts in counts.values():
            frequency.update(set().union(*texts))
        self._unseen = math.log(len(counts)) if counts else 0.0
        self._idf = {ngram: self._unseen - math.log(images) for ngram, images in frequency.items()}
        self._references = {image_id: self._prepare(texts) for image_id, texts in counts.items()}

    def score(self, candidates: Mapping[int, str]) -> tuple[float, dict[int, float]]:
        """Mean and per-image CIDEr-D of one tokenised caption per image, as fractions (times 100 in papers).

        Raises:
            BenchError: the ids are not those of the references.
        """
        require_same_images(self._references, candidates)
        per_image = {
            image_id: self._score_image(candidates[image_id], against) for image_id, against in self._references.items()
        }
        return (sum(per_image.values()) / len(per_image) if per_image else 0.0), per_image

    def _weigh(self, counts: Counter[NGram]) -> tuple[dict[NGram, float], list[float], int]:
        """Term frequency times inverse document frequency; the norm of each order; the number of bigrams."""
        weights = {ngram: count * self._idf.get(ngram, self._unseen) for ngram, count in counts.items()}
        squares = [0.0] * MAX_ORDER
        length = 0
        for ngram, weight in weights.items():
            squares[len(ngram) - 1] += weight * weight
            if len(ngram) == 2:
                length += counts[ngram]
        return weights, [math.sqrt(square) for square in squares], length

    def _prepare(self, texts: Sequence[Counter[NGram]]) -> _References:
        prepared = _References({}, [], [])
        for index, counts in enumerate(texts):
            weights, norms, length = self._weigh(counts)
            for ngram, weight in weights.items():
                prepared.weights.setdefault(ngram, []).append((index, weight))
            prepared.norms.append(norms)
            prepared.lengths.append(length)
        return prepared

    def _score_image(self, caption: str, against: _References) -> float:
        weights, norms, length = self._weigh(_ngrams(caption))
        products = [[0.0] * MAX_ORDER for _ in against.lengths]
        for ngram, weight in weights.items():
            for index, reference_weight in against.weights.get(ngram, ()):
                products[index][len(ngram) - 1] += min(weight, reference_weight) * reference_weight
        total = 0.0
        for product, reference_norms, reference_length in zip(products, against.norms, against.lengths, strict=True):
            penalty = math.exp(-((length - reference_length) ** 2) / (2 * SIGMA**2))
            for order in range(MAX_ORDER):
                scale = norms[order] * reference_norms[order]
                if scale > 0:
                    total += product[order] / scale * penalty
        return _SCALE * total / MAX_ORDER / len(against.lengths)


def corpus_cider(
    references: Mapping[int, Sequence[str]], candidates: Mapping[int, str]
) -> tuple[float, dict[int, float]]:
    """Mean and per-image CIDEr-D of tokenised `candidates`; to score many against the same references use `CiderD`.

    Raises:
        BenchError: the ids differ.
    """
    return CiderD(references).score(candidates)


def _ngrams(text: str) -> Counter[NGram]:
    words = text.split()
    return Counter(
        tuple(words[start : start + order])
        for order in range(1, MAX_ORDER + 1)
        for start in range(len(words) - order + 1)
    )
