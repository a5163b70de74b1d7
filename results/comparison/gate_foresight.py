"""What fall a gate could see that judges by a baseline where bits cannot be compared, from the baseline's own runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from results.comparison.baseline import Baseline, Run, scores_of_seeds, tested_metrics
from results.comparison.gate_result import Settings
from results.statistics.architecture import missing, summary
from results.statistics.paired import mean_of_seeds
from results.statistics.power import MAX_SEEDS, detectable, least_seeds


@dataclass(frozen=True, slots=True)
class Foreseen:
    """One metric on one split of a trained row, and the smallest fall that `seeds` on both sides find, in points.

    `detectable` has a probability of 80 %; None where one seed does not tell how much training varies. `enough` is the
    least number of seeds that finds a fall of `tolerance` points; None where that is unknown, or no number does.
    """

    model: str
    split: str
    metric: str
    seeds: int
    images: int
    detectable: float | None
    tolerance: float
    enough: int | None

    @property
    def blind(self) -> bool:
        """Whether a fall of the tolerance could go unseen."""
        return self.detectable is None or self.detectable > self.tolerance

    @property
    def said(self) -> str:
        """A line for the reader."""
        many = f"{self.seeds} seed{'s' * (self.seeds > 1)}"
        size = "how much training varies is not known" if self.detectable is None else f"{self.detectable:.1f} points"
        return f"{self.model}: {self.metric} on {self.split}: {size} ({many}, {self.images} images)"


def foresee(baseline: Baseline, settings: Settings) -> list[Foreseen]:
    """What fall of every trained row would be seen by a measured side that varies as the baseline's own seeds do.

    Both sides are of one architecture, which no image favours: beyond the interaction with seeds images add nothing to
    the variance (`image_deviation` 0). Rows without training, whose captions do not vary, are left out; they count
    among the tests that are corrected together.
    """
    rows: dict[object, list[Run]] = {}
    for run in baseline.runs:
        rows.setdefault(run.row, []).append(run)
    tested = [
        (runs, split, metric, scores)
        for runs in rows.values()
        for split, metric in tested_metrics(runs)
        if (scores := scores_of_seeds(runs, split, metric)) is not None
    ]
    return [
        _foreseen(runs[0].model, split, metric, scores, settings.least(metric), len(tested))
        for runs, split, metric, scores in tested
        if runs[0].losses
    ]


def unseen(rows: Sequence[Foreseen]) -> tuple[str, str] | None:
    """What the gate could not see of what its tolerance promises, and what to do about it; None where it could."""
    blind = [row for row in rows if row.blind]
    if not blind:
        return None
    promised = ", ".join(dict.fromkeys(f"{row.tolerance:g} {row.metric} points" for row in blind))
    what = f"a fall of {promised} could go unseen in {len(blind)} of {len(rows)} tests of trained models"
    if any(row.detectable is None for row in blind):
        return what, "make the runs with several seeds: bench run --seeds 5"
    least: dict[str, float] = {}
    for row in blind:
        least[row.metric] = max(least.get(row.metric, 0.0), row.detectable or 0.0)
    tolerances = " ".join(f"--tolerance {metric}={ceil(points)}" for metric, points in least.items())
    seeds = [row.enough for row in blind]
    if None in seeds:
        return what, f"tolerate more, also when judging ({tolerances}); {MAX_SEEDS} seeds would not be enough"
    most = max(each for each in seeds if each is not None)
    more = f"make the runs with more seeds: bench run --seeds {most}"
    return what, f"{more}; or tolerate more, also when judging ({tolerances})"


def _foreseen(
    model: str, split: str, metric: str, scores: Sequence[dict[int, float]], tolerance: float, tests: int
) -> Foreseen:
    images = list(mean_of_seeds(scores))
    points = 100 * np.array([[seed[image] for image in images] for seed in scores])
    if missing(points) is not None:
        return Foreseen(model, split, metric, len(scores), len(images), None, tolerance, None)
    deviation = float(np.sqrt(len(scores) * summary(points).between))
    found = detectable(len(scores), len(images), deviation, 0.0, tests)
    enough = least_seeds(tolerance, len(images), deviation, 0.0, tests) if found > tolerance else len(scores)
    return Foreseen(model, split, metric, len(scores), len(images), found, tolerance, enough)
