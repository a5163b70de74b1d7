"""METEOR 1.5 from the statistics of each segment, so that a subset's corpus score needs no further Java run.

Denkowski and Lavie, "Meteor Universal", WMT 2014, with the English parameters. The jar gives 23 statistics for each
caption (edu.cmu.meteor.scorer.MeteorStats); a segment's score is a function of them, and a corpus's score is the same
function of their sum, not the mean over segments.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from harness.metrics.contract import Array, Metric, Statistics

STATISTICS: Final = 23
_ALPHA, _BETA, _GAMMA, _DELTA = 0.85, 0.2, 0.6, 0.75
_WEIGHTS: Final = np.array([1.0, 0.6, 0.8, 0.6])  # exact, stem, synonym, paraphrase
_CHUNKS: Final = 20


class Meteor(Metric):
    """METEOR from the jar's 23 statistics, whose sum over a corpus gives its score."""

    names = ("METEOR",)

    def score(self, totals: Array) -> Array:
        """METEOR of (..., 23) sums."""
        return _score(totals.reshape(-1, STATISTICS)).reshape(*totals.shape[:-1], 1)

    def statistics(self, answers: Array) -> Statistics:
        """Statistics from the jar's output, (N, 23)."""
        return Statistics(self, _without_perfect_chunks(answers))


METEOR: Final = Meteor()


def _without_perfect_chunks(statistics: Array) -> Array:
    """A segment equal to its reference has no fragmentation: its one chunk counts as none, in sums too."""
    matches = statistics[:, 4:20].reshape(-1, 4, 2, 2)  # stage, content or function, test or reference
    total = matches.sum(axis=(1, 2))
    perfect = (total == statistics[:, 0:2]).all(axis=1) & (statistics[:, _CHUNKS] == 1)
    cleaned = statistics.copy()
    cleaned[perfect, _CHUNKS] = 0.0
    return cleaned


def _score(statistics: Array) -> Array:
    """The formula for (N, 23): lengths and function words of (test, reference), matches, chunks, matched words."""
    lengths, function_words = statistics[:, 0:2], statistics[:, 2:4]
    content_matches, function_matches = np.moveaxis(statistics[:, 4:20].reshape(-1, 4, 2, 2), 2, 0)
    weighted = _WEIGHTS @ (_DELTA * content_matches + (1 - _DELTA) * function_matches)
    available = _DELTA * (lengths - function_words) + (1 - _DELTA) * function_words
    with np.errstate(divide="ignore", invalid="ignore"):
        precision, recall = (weighted / available).T
        f_mean = 1.0 / ((1.0 - _ALPHA) / precision + _ALPHA / recall)
        fragmentation = statistics[:, _CHUNKS] / (statistics[:, 21:23].sum(axis=1) / 2)
        penalty = _GAMMA * fragmentation**_BETA
        score = f_mean * (1.0 - penalty)
    return np.where(np.isnan(score), 0.0, np.maximum(score, 0.0))
