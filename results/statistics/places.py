"""Places of a table's models: which ranks the simultaneous intervals of all differences allow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from results.statistics.architecture import (
    ArchitectureDifference,
    differences_by_pair,
    joint_degrees,
    missing,
    p_of_t,
    t_quantile,
)
from results.statistics.significance import ALPHA, Array, holm


@dataclass(frozen=True, slots=True)
class PairOfModels:
    """Two models by their numbers, and the difference first less second.

    `low` and `high` hold for all pairs of the table at once, `adjusted` is p after Holm's correction for all of them.
    All three are None where the difference has a reason for having no interval.
    """

    first: int
    second: int
    difference: ArchitectureDifference
    low: float | None
    high: float | None
    adjusted: float | None


@dataclass(frozen=True, slots=True)
class Place:
    """Best and worst rank of a model, 1 the best, among those that have one; None with a reason."""

    best: int | None
    worst: int | None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Places:
    """All pairs of a table and each model's place, in the order given; higher scores are better."""

    pairs: tuple[PairOfModels, ...]
    places: tuple[Place, ...]


def places(models: Sequence[Array], alpha: float = ALPHA) -> Places:
    """Compare all pairs of models by their scores (S, N) of the same images in the same order.

    Each interval has the level 1 - alpha / pairs (Bonferroni), so that all hold at once with 1 - alpha, whatever the
    dependence between pairs. A place runs from 1 plus the number of models that are surely better to the number of
    models less those that are surely worse (Klein, Wright and Wieczorek 2020): then all places hold at once too.
    Models with one seed have none, and are not counted.
    """
    found = differences_by_pair(models)
    tests = sum(each.error is not None for each in found.values())
    bounds = _joint([each for each in found.values() if each.error is not None], alpha, tests)
    joint = dict(zip((pair for pair, each in found.items() if each.error is not None), bounds, strict=True))
    adjusted = dict(zip(joint, holm([p for _, _, p in bounds]), strict=True))
    pairs = []
    for pair, each in found.items():
        low, high, _ = joint.get(pair, (None, None, None))
        pairs.append(PairOfModels(*pair, each, low, high, adjusted.get(pair)))
    return Places(tuple(pairs), tuple(_places(models, pairs)))


def _joint(tested: Sequence[ArchitectureDifference], alpha: float, tests: int) -> list[tuple[float, float, float]]:
    """Intervals of the corrected level, and the p-values that Holm's correction takes."""
    columns = [(each.difference, each.error, joint_degrees(each.degrees or 0.0, each.seeds, tests)) for each in tested]
    differences, errors, degrees = np.array(columns, dtype=np.float64).reshape(-1, 3).T
    halves = t_quantile(1 - alpha / max(tests, 1), degrees) * errors
    found = np.stack((differences - halves, differences + halves, p_of_t(differences, errors, degrees)), axis=1)
    return [(low, high, p) for low, high, p in found.tolist()]


def _places(models: Sequence[Array], pairs: Sequence[PairOfModels]) -> list[Place]:
    reasons = [missing(scores) for scores in models]
    better, worse = [0] * len(models), [0] * len(models)
    for pair in pairs:
        if pair.low is None or pair.high is None or pair.low <= 0 <= pair.high:
            continue
        winner, loser = (pair.first, pair.second) if pair.low > 0 else (pair.second, pair.first)
        better[loser] += 1
        worse[winner] += 1
    placed = reasons.count(None)
    return [
        Place(1 + better[model], placed - worse[model]) if reason is None else Place(None, None, reason)
        for model, reason in enumerate(reasons)
    ]
