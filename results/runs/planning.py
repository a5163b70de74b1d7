"""What stored runs say for plans of further ones: how much scores vary, and how long training took."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import sqrt
from statistics import fmean
from typing import Final

from results.metrics import RANKING_METRIC
from results.runs.leaderboard import rows_of
from results.runs.reading import finished, image_scores
from results.runs.spreads import machine_of
from results.runs.standings import BASELINES
from results.statistics.architecture import missing, summary
from results.statistics.score_matrix import ScoreMatrix
from results.store.store import Store

_POINTS: Final = 100


@dataclass(frozen=True, slots=True)
class StoredVariances:
    """Standard deviations in CIDEr-D points, of `models` rows with several seeds and `runs` runs, pooled over models.

    Of a model's seed means over these images, with `degrees` of freedom; of seed and image together; and over images of
    two models' paired differences without the interaction with seeds, None where there is one model.
    """

    seed_deviation: float
    degrees: int
    interaction_deviation: float
    image_deviation: float | None
    images: int
    models: int
    runs: int


def stored_variances(store: Store, dataset: str, split: str) -> StoredVariances | None:
    """The variances of the comparable runs that know most of seeds, the newest of equals; None where no model has two.

    The data set is named or given by its fingerprint. Baselines are left out: they are no candidates.
    """
    models = (run for run in finished(store, dataset) if run.role == "model" and run.model not in BASELINES)
    runs = [run for run in models if split in run.scores.splits]
    with store.reading() as connection:
        ciders = image_scores(connection, runs, split, RANKING_METRIC)
    groups: dict[object, list[list[int]]] = {}
    for row in rows_of(runs):
        scored = [run.id for run in row if ciders.has(run.id)]
        groups.setdefault(row[0].comparable, []).append(scored)
    by_group = [variances for rows in groups.values() if (variances := _variances(ciders, rows)) is not None]
    return max(reversed(by_group), key=lambda variances: variances.degrees, default=None)


def _variances(ciders: ScoreMatrix, rows: Sequence[Sequence[int]]) -> StoredVariances | None:
    """Of the rows of a group, each the ids of its runs that have scores."""
    several = [runs for runs in rows if len(runs) > 1]
    images = ciders.common([run for runs in several for run in runs])
    models = [_POINTS * ciders.of_images(runs, images) for runs in several]
    if not models or any(missing(scores) for scores in models):
        return None
    count = models[0].shape[1]
    parts = [summary(scores) for scores in models]
    seeds = [len(scores) for scores in models]
    degrees = sum(seeds) - len(seeds)
    weighed = [((n_seeds - 1) * n_seeds / degrees, part) for n_seeds, part in zip(seeds, parts, strict=True)]
    between = sum(weight * float(part.between) for weight, part in weighed)
    interaction = sum(weight * float(part.interaction) for weight, part in weighed)  # e²/N
    # Of one image's difference, as `results.statistics.architecture.difference_of_means` has it; may be below 0.
    pairs = [
        float((first.images - second.images).var(ddof=1) - count * (first.interaction + second.interaction))
        for first, second in combinations(parts, 2)
    ]
    deviation = sqrt(max(fmean(pairs), 0.0)) if pairs else None
    sizes = count, len(parts), sum(seeds)
    return StoredVariances(sqrt(between), degrees, sqrt(count * interaction), deviation, *sizes)


def run_seconds(store: Store, dataset: str, conditions: dict[str, str], machine: str | None = None) -> dict[str, float]:
    """Mean seconds of runs that finished at the first attempt, by model; `conditions` are of signatures.

    `machine` is the name of the device, else of the processor, that they ran on; None: whatever they ran on.
    """
    seconds: dict[str, list[float]] = {}
    for run in finished(store, dataset):
        if run.attempts != 1 or not run.started_at or not conditions.items() <= run.signature.items():
            continue
        if machine is None or machine_of(run.environment, "trained") == machine:
            seconds.setdefault(run.model, []).append((run.ended - run.started_at).total_seconds())
    return {model: fmean(of_model) for model, of_model in seconds.items()}
