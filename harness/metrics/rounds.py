"""Rounds of scoring on the same images, averaged: for example, leaving out each reference in turn.

A human caption can only be scored against the other references of its image; for a fair comparison, models are scored
against the same smaller sets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.metrics.contract import Array, Metric, Statistics
from harness.metrics.meteor import METEOR

Ask = Callable[[Mapping[int, Sequence[str]], Mapping[int, str]], Array]


@dataclass(frozen=True, slots=True)
class Round:
    """One tokenised caption per image, and its tokenised references, by image id."""

    references: dict[int, list[str]]
    captions: dict[int, str]


class MeanOfRounds(Metric):
    """The mean of a metric over rounds. Statistics: those of each round, concatenated."""

    def __init__(self, metric: Metric, rounds: int) -> None:
        self.names = metric.names
        self._metric, self._rounds = metric, rounds

    def score(self, totals: Array) -> Array:
        """Mean over rounds of the scores of (..., rounds * K) sums."""
        by_round = self._metric.score(totals.reshape(*totals.shape[:-1], self._rounds, -1))
        mean: Array = by_round.mean(axis=-2)
        return mean


def mean_of_rounds(rounds: Sequence[Statistics]) -> Statistics:
    """The statistics of several rounds on the same images, as one; those of a single round unchanged."""
    if len(rounds) == 1:
        return rounds[0]
    values = np.concatenate([each.values for each in rounds], axis=1)
    return Statistics(MeanOfRounds(rounds[0].metric, len(rounds)), values)


def held_out_rounds(references: Mapping[int, Sequence[str]], captions: Mapping[int, str] | None = None) -> list[Round]:
    """One round for each reference of the image with most; round k leaves out reference k modulo the image's number.

    Scores `captions`, or without them the references left out. Images with a single reference are in no round.
    """
    several = {image_id: texts for image_id, texts in references.items() if len(texts) > 1}
    rounds = []
    for number in range(max(map(len, several.values()), default=0)):
        others, said = {}, {}
        for image_id, texts in several.items():
            out = number % len(texts)
            others[image_id] = [*texts[:out], *texts[out + 1 :]]
            said[image_id] = texts[out] if captions is None else captions[image_id]
        rounds.append(Round(others, said))
    return rounds


Answered = dict[tuple[str, str], Array]
"""METEOR's 23 numbers by caption and reference."""


def meteor_answers(rounds: Sequence[Round], ask: Ask, known: Answered) -> list[Array]:
    """METEOR's (N, 23) statistics of every round; `ask` gets every caption and reference once.

    METEOR takes the reference with the best score, on a tie the first.

    Args:
        known: answers of the call before, which are not asked for again; those of this call afterwards.
    """
    pairs = dict.fromkeys(
        (caption, text)
        for each in rounds
        for image_id, caption in each.captions.items()
        for text in each.references[image_id]
    )
    new = [pair for pair in pairs if pair not in known]
    if new:
        asked = ask(
            {number: [text] for number, (_, text) in enumerate(new)},
            {number: caption for number, (caption, _) in enumerate(new)},
        )
        known.update(zip(new, asked, strict=True))
    for pair in known.keys() - pairs.keys():
        del known[pair]
    answers = np.stack([known[pair] for pair in pairs])
    numbers = {pair: number for number, pair in enumerate(pairs)}
    scores = METEOR.statistics(answers).per_image()["METEOR"]

    def best(caption: str, texts: Sequence[str]) -> int:
        return max((numbers[caption, text] for text in texts), key=scores.__getitem__)

    return [
        answers[[best(caption, each.references[image_id]) for image_id, caption in each.captions.items()]]
        for each in rounds
    ]
