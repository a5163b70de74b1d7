"""Pairs of models of which a source prints a difference, compared by stored runs; all tests corrected together."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field, TypeAdapter

from results.comparison.comparison import ScoreChange, rows_of_runs, scored_sides, tested_pairs
from results.comparison.conditions import distinguishing
from results.comparison.recording import Closed
from results.records import Quantity
from results.runs.run import Run
from results.statistics.architecture import OVER_SEEDS
from results.statistics.significance import ALPHA

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
        if self.score.test.adjusted >= ALPHA:
            return "not significant"
        if self.pair.printed is None or self.pair.printed == 0:
            return "a higher" if self.difference > 0 else "b higher"
        return "as printed" if (self.difference > 0) == (self.pair.printed > 0) else "opposite"


def compare_pairs(runs: Iterable[Run], pairs: Sequence[PrintedPair]) -> list[PairResult]:
    """Each pair under all conditions that both of its models ran under; a pair without any has a reason."""
    by_conditions: dict[frozenset[tuple[str, str]], dict[str, list[Run]]] = {}
    for (role, model, conditions), seeds in rows_of_runs(runs).items():
        if role == "model":
            by_conditions.setdefault(conditions, {})[model] = seeds
    found = [
        (pair, scored_sides(models[pair.b], models[pair.a]))
        for pair in pairs
        for models in by_conditions.values()
        if pair.a in models and pair.b in models
    ]
    labels = _labels([ours[0] for _, (_, ours) in found])
    scores = tested_pairs([sides for _, sides in found], _main_score)
    results: dict[int, list[PairResult]] = {}
    for (pair, (theirs, ours)), label, of_pair in zip(found, labels, scores, strict=True):
        score = next(iter(of_pair), ScoreChange(SPLIT, METRIC, None, None, reason=f"no {METRIC} on {SPLIT}"))
        result = PairResult(pair, label, (len(ours), len(theirs)), score, score.reason)
        results.setdefault(id(pair), []).append(result)
    models = {model for rows in by_conditions.values() for model in rows}
    return [result for pair in pairs for result in results.get(id(pair), [_unmeasured(pair, models)])]


def _unmeasured(pair: PrintedPair, models: set[str]) -> PairResult:
    missing = [model for model in (pair.a, pair.b) if model not in models]
    reason = f"no run of {' and '.join(missing)} has finished" if missing else "never under the same conditions"
    return PairResult(pair, reason=reason)


def _main_score(run: Run) -> Mapping[str, Mapping[str, Quantity]]:
    overall = run.scores.get(SPLIT, {}).get("overall", {})
    return {SPLIT: {METRIC: overall[METRIC]}} if METRIC in overall else {}


def _labels(runs: Sequence[Run]) -> list[str]:
    """The label of each run, with what else distinguishes those of one model where labels are the same."""
    unique = {run.key: run for run in runs}
    apart = dict(zip(unique, distinguishing(list(unique.values())), strict=True))
    short = {key: _label(run) for key, run in unique.items()}
    alike = Counter((run.model, short[key]) for key, run in unique.items())
    return [
        f"{short[run.key]} ({apart[run.key]})" if alike[run.model, short[run.key]] > 1 else short[run.key]
        for run in runs
    ]


def _label(run: Run) -> str:
    """Data, updates, and whether the model was trained with rewards."""
    label = run.dataset
    steps = run.costs.get("train_steps")
    if steps is not None and steps.value is not None:
        label += f", {round(steps.value):,} updates"
    if "reward" in run.conditions:
        label += " with rewards"
    return label
