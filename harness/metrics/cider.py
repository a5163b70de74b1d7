"""CIDEr-D, for evaluation, validation and the reward of self-critical training.

Vedantam et al., "CIDEr: Consensus-based Image Description Evaluation", CVPR 2015 (section 5 for the D variant). Equal
to pycocoevalcap's `Cider`, whose settings are: n-grams of order 1 to 4, counts clipped, a Gaussian penalty on length
with sigma 6, times 10. "Length" there counts bigrams.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from harness.metrics.contract import Array
from harness.metrics.image_ids import require_same_images
from harness.metrics.ngrams.corpus import Block, Corpus
from harness.metrics.ngrams.counting import MAX_ORDER, Ints
from harness.metrics.ngrams.frequencies import DocumentFrequencies

SIGMA: Final = 6.0
SCALE: Final = 10.0


class CiderD:
    """CIDEr-D against fixed references, tokenised, with document frequencies over these references.

    With a single image every score is 0, since every inverse document frequency is 0.
    """

    def __init__(self, references: Mapping[int, Sequence[str]]) -> None:
        self._references = {image_id: list(texts) for image_id, texts in references.items()}

    def score(self, candidates: Mapping[int, str]) -> tuple[float, dict[int, float]]:
        """Mean and per-image CIDEr-D of one tokenised caption per image, as fractions (times 100 in papers).

        Raises:
            BenchError: the ids differ from those of the references.
        """
        require_same_images(self._references, candidates)
        if not self._references:
            return 0.0, {}
        corpus = Corpus.of_texts(self._references, candidates)
        scores = cider_d(corpus, corpus.frequencies())
        return float(scores.mean()), dict(zip(self._references, scores.tolist(), strict=True))


class CiderReward:
    """CIDEr-D of sampled captions as token numbers, with document frequencies of the training set."""

    def __init__(self, frequencies: DocumentFrequencies) -> None:
        self._frequencies = frequencies

    def __call__(
        self, references: Sequence[Sequence[Sequence[int]]], samples: Sequence[Sequence[Sequence[int]]]
    ) -> Array:
        """Rewards (B, n) of n samples for each of B images; references by image, numbers as in the frequencies.

        Raises:
            ValueError: a number is out of range, or images have different numbers of samples.
        """
        return cider_d(Corpus.of_numbers(references, samples), self._frequencies).reshape(len(samples), -1)


def cider_d(corpus: Corpus, frequencies: DocumentFrequencies) -> Array:
    """CIDEr-D of every candidate, image by image, (N * candidates,)."""
    parts = [_of_block(block, frequencies.idf(block.counts.keys)) for block in corpus]
    return np.concatenate(parts) if parts else np.zeros(0)


def _of_block(block: Block, idf: Array) -> Array:
    counts = block.counts
    weight = counts.count * idf[counts.gram]
    caption = block.first[counts.image] + counts.slot
    cell = caption * MAX_ORDER + counts.orders[counts.gram]
    norm = np.sqrt(np.bincount(cell, weight * weight, len(block.lengths) * MAX_ORDER))
    candidate, reference = _pairs(block)

    both = norm[cell[candidate]] * norm[cell[reference]]
    product = np.minimum(weight[candidate], weight[reference]) * weight[reference]
    similarity = np.divide(product, both, out=np.zeros_like(product), where=both > 0)
    length = np.maximum(block.lengths - 1, 0)
    gap = length[caption[candidate]] - length[caption[reference]]
    similarity *= np.exp(-(gap.astype(np.float64) ** 2) / (2 * SIGMA**2))
    totals = np.bincount(caption[candidate], similarity, len(block.lengths))
    mine = (block.first[:-1, None] + np.arange(block.candidates)).ravel()
    scores: Array = totals[mine] * (SCALE / MAX_ORDER) / np.repeat(block.references, block.candidates)
    return scores


def _pairs(block: Block) -> tuple[Ints, Ints]:
    """Entries of the block's counts, candidate's and reference's, of the same image and n-gram."""
    counts = block.counts
    starts = counts.groups
    sizes = np.diff(starts, append=len(counts.slot))
    of_candidate = counts.slot < block.candidates
    group = np.repeat(np.arange(len(starts)), sizes)
    mine = np.flatnonzero(of_candidate)
    in_group = np.bincount(group[mine], minlength=len(starts))
    first_reference = (starts + in_group)[group[mine]]
    references = (sizes - in_group)[group[mine]]
    before = np.cumsum(references) - references
    offset = np.arange(references.sum()) - np.repeat(before, references)
    return np.repeat(mine, references), np.repeat(first_reference, references) + offset
