"""Pairs of models of which a source prints a difference, compared by stored runs; all tests corrected together."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field, TypeAdapter

from results.comparison.comparison import ScoreChange, rows_of_runs, scored_sides, tested_pairs
from results.comparison.conditions import distinguishing
from results.comparison.recording import Closed
from results.records import Quantity
from results.runs.reading import StoredRuns
from results.runs.run import Run
from results.statistics.architecture import OVER_SEEDS

METRIC = "CIDEr-D"
SPLIT = "test"

Verdict = Literal["as printed", "opposite", "a higher", "b higher", "not significant", "one seed", "not measured"]


class PrintedPair(Closed):
    """Two models, the difference of their CIDEr-D in points that a source prints, a less b, and where it is printed."""

    a: str = Field(min_length=1)
    b: str = Field(min_length=1)
    printed: float | None = Field(default=None, allow_inf_nan=False)
    source: str = ""


PAIRS = TypeAdapter(tuple[PrintedPair, ...])


@dataclass(frozen=True, slots=True)
class PairResult:
    """What stored runs under one set of conditions say of a pair.

    `score` has b before and a after, with the corrected test; None where the two were not measured together, for this
    `reason`. `conditions` are the data, the length of training and whether it had rewards, `seeds` the numbers of runs
    of a and b.
    """

    pair: PrintedPair
    conditions: str = ""
    seeds: tuple[int, int] = (0, 0)
    score: ScoreChange | None = None
    reason: str | None = None

    @property
    def difference(self) -> float | None:
        """CIDEr-D of a less that of b, a fraction."""
        if self.score is None or self.score.before is None or self.score.after is None:
            return None
        return self.score.after - self.score.before

    @property
    def verdict(self) -> Verdict:
        """Whether the difference is significant at 5 %, and has the printed sign."""
        if self.score is None or self.score.test is None or self.difference is None:
            return "not measured"
        if self.score.over != OVER_SEEDS:
            return "one seed"
        if not self.score.estimate.is_significant:
            return "not significant"
        if self.pair.printed is None or self.pair.printed == 0:
            return "a higher" if self.difference > 0 else "b higher"
        return "as printed" if (self.difference > 0) == (self.pair.printed > 0) else "opposite"


def compare_pairs(stored: StoredRuns, pairs: Sequence[PrintedPair]) -> list[PairResult]:
    """Each pair under all conditions that both of its models ran under; a pair without any has a reason."""
    by_conditions: dict[frozenset[tuple[str, str]], dict[str, list[Run]]] = {}
    for (role, model, conditions), seeds in rows_of_runs(stored.runs).items():
        if role == "model":
            by_conditions.setdefault(conditions, {})[model] = seeds
    compared: list[PrintedPair] = []
    sides: list[tuple[list[Run], list[Run]]] = []  # b, then a: a difference is the second less the first
    for pair in pairs:
        for models in by_conditions.values():
            if pair.a in models and pair.b in models:
                compared.append(pair)
                sides.append(scored_sides(models[pair.b], models[pair.a]))
    labels = _labels([runs_of_a[0] for _, runs_of_a in sides])
    results: dict[PrintedPair, list[PairResult]] = {}
    for pair, (runs_of_b, runs_of_a), label, scores in zip(
        compared, sides, labels, tested_pairs(sides, (stored.store, stored.store), _main_score), strict=True
    ):
        score = ScoreChange(SPLIT, METRIC, None, None, reason=f"no {METRIC} on {SPLIT}")
        if scores:
            [score] = scores
        result = PairResult(pair, label, (len(runs_of_a), len(runs_of_b)), score, score.reason)
        results.setdefault(pair, []).append(result)
    stored_models = {model for models in by_conditions.values() for model in models}
    ordered: list[PairResult] = []
    for pair in dict.fromkeys(pairs):
        ordered += results.get(pair) or [_unmeasured(pair, stored_models)]
    return ordered


def _unmeasured(pair: PrintedPair, models: set[str]) -> PairResult:
    missing = [model for model in (pair.a, pair.b) if model not in models]
    reason = f"no run of {' and '.join(missing)} has finished" if missing else "never under the same conditions"
    return PairResult(pair, reason=reason)


def _main_score(run: Run) -> Mapping[str, Mapping[str, Quantity]]:
    score = run.scores.get(SPLIT, METRIC)
    return {} if score is None else {SPLIT: {METRIC: score}}


def _labels(runs: Sequence[Run]) -> list[str]:
    """The label of each run, with what else separates those of one model where labels are the same."""
    unique = {run.key: run for run in runs}
    separating = dict(zip(unique, distinguishing(list(unique.values())), strict=True))
    counts = Counter((run.model, _label(run)) for run in unique.values())
    labels = []
    for run in runs:
        label = _label(run)
        if counts[run.model, label] > 1:
            label += f" ({separating[run.key]})"
        labels.append(label)
    return labels


def _label(run: Run) -> str:
    """Data, updates, and whether the model was trained with rewards."""
    label = run.dataset
    steps = run.costs.get("train_steps")
    if steps is not None and steps.value is not None:
        label += f", {round(steps.value):,} updates"
    if "reward" in run.conditions:
        label += " with rewards"
    return label
