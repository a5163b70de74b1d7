"""BLEU-1 to 4 as coco-caption computes it: clipped counts, "closest" reference length, smoothing by tiny constants.

Papineni et al., "BLEU: a Method for Automatic Evaluation of Machine Translation", ACL 2002. Equal to pycocoevalcap's
`BleuScorer`: a tie between reference lengths goes to the shorter one.
"""

from typing import Final

import numpy as np

from harness.metrics.ngrams import CANDIDATE_SLOT, MAX_ORDER, Block, Corpus
from results.statistics.significance import Array, Metric, Statistics

_TINY, _SMALL = 1e-15, 1e-9  # coco-caption's, so that an empty caption has a score


def bleu(corpus: Corpus) -> Statistics:
    """Statistics (N, 10): lengths of candidate and closest reference, its n-grams of order 1 to 4, those that match."""
    return Statistics(BLEU, np.concatenate([_of_block(block) for block in corpus]))


def _score(totals: Array) -> Array:
    length = totals[..., :1]
    reference = totals[..., 1:2]
    guessed = totals[..., 2 : 2 + MAX_ORDER]
    correct = totals[..., 2 + MAX_ORDER :]
    scores = np.cumprod((correct + _TINY) / (guessed + _SMALL), axis=-1) ** (1.0 / np.arange(1, MAX_ORDER + 1))
    ratio = (length + _TINY) / (reference + _SMALL)
    with np.errstate(over="ignore"):
        brevity = np.exp(1.0 - 1.0 / ratio)
    return np.where(ratio < 1, scores * brevity, scores)


BLEU: Final = Metric(tuple(f"BLEU-{order}" for order in range(1, MAX_ORDER + 1)), _score)


def _of_block(block: Block) -> Array:
    counts = block.counts
    images = len(block.first) - 1
    group_starts = counts.groups
    with_candidate = counts.slot[group_starts] == CANDIDATE_SLOT
    in_references = np.where(counts.slot == CANDIDATE_SLOT, 0, counts.count)
    clip = np.maximum.reduceat(in_references, group_starts) if len(group_starts) else in_references
    candidate_entries = group_starts[with_candidate]
    matches = np.minimum(counts.count[candidate_entries], clip[with_candidate])
    cell = counts.image[candidate_entries] * MAX_ORDER + counts.orders[counts.gram[candidate_entries]]
    correct = np.bincount(cell, matches, images * MAX_ORDER).reshape(images, MAX_ORDER)
    length = block.lengths[block.first[:-1]]
    guessed = np.maximum(length[:, None] - np.arange(MAX_ORDER), 0)
    return np.column_stack([length, _closest_lengths(block), guessed, correct]).astype(np.float64)


def _closest_lengths(block: Block) -> Array:
    """For each image, the reference length closest to the candidate's; the shorter on a tie."""
    image = np.repeat(np.arange(len(block.first) - 1), np.diff(block.first))
    gap = np.abs(block.lengths - block.lengths[block.first[:-1]][image])
    widest = int(block.lengths.max(initial=0)) + 1
    ranked = gap * widest + block.lengths
    ranked[block.first[:-1]] = np.iinfo(np.int64).max  # the candidate itself
    return (np.minimum.reduceat(ranked, block.first[:-1]) % widest).astype(np.float64)
