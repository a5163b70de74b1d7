"""What a change of the code does to trained models: their scores before and after, by the tests of `bench compare`."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from results.comparison.changes import MetricChange, with_smallest_change
from results.comparison.comparison import (
    Comparison,
    Images,
    ScoreChange,
    compare_stores,
    scores_to_test,
)
from results.runs.reading import StoredRuns
from results.runs.run import Run


@dataclass(frozen=True, slots=True)
class LostRun:
    """A run that finished before the change, and does not finish after it."""

    model: str
    seed: int
    reason: str


@dataclass(frozen=True, slots=True)
class CommitComparison:
    """The changes of all models' metrics since `commit`; `comparison` has costs, settings and captions."""

    commit: str
    changes: tuple[MetricChange, ...]
    lost: tuple[LostRun, ...]
    comparison: Comparison

    @property
    def worse(self) -> list[MetricChange]:
        return [change for change in self.changes if change.is_worse]

    @property
    def better(self) -> list[MetricChange]:
        return [change for change in self.changes if change.is_better]

    @property
    def untested(self) -> list[MetricChange]:
        return [change for change in self.changes if change.estimate.p is None]

    @property
    def exit_code(self) -> int:
        """1 where a score is significantly lower or a run is lost, 2 where a score could not be tested, else 0."""
        if self.worse or self.lost:
            return 1
        return 2 if self.untested else 0


def compare_commits(
    commit: str,
    before: StoredRuns,
    after: StoredRuns,
    *,
    unfinished: Iterable[Run],
    images: Images,
    metrics: Collection[str],
) -> CommitComparison:
    """Compare finished runs of two commits by these metrics alone.

    `unfinished` are the other runs after the change, `images` those that were captioned, by the data set's fingerprint.
    """
    scored_before = replace(before, runs=[_with_scores_of(run, metrics) for run in before.runs])
    scored_after = replace(after, runs=[_with_scores_of(run, metrics) for run in after.runs])
    comparison = compare_stores(scored_before, scored_after, images, most=0)
    keyed_before = {run.key: run for run in before.runs}
    keyed_after = {run.key: run for run in after.runs}  # of the same keys, where no setting has changed
    changes = []
    for pair in comparison.pairs:
        runs_before = [keyed_before[key] for key in pair.before.keys]
        runs_after = [keyed_after[key] for key in pair.after.keys]
        for score in pair.scores:
            change = _metric_change(pair.after.model, score)
            if score.test is not None:
                stores = before.store, after.store
                scores = scores_to_test(stores, runs_before, runs_after, score.split, score.metric).scores
                change = with_smallest_change(change, scores, comparison.tests)
            changes.append(change)
    lost = _lost_runs(before.runs, after.runs, unfinished)
    return CommitComparison(commit, tuple(changes), lost, comparison)


def _with_scores_of(run: Run, metrics: Collection[str]) -> Run:
    """The run with these scores alone: every further test would widen the intervals."""
    return replace(run, scores=run.scores.only(metrics))


def _metric_change(model: str, score: ScoreChange) -> MetricChange:
    return MetricChange(
        model, score.split, score.metric, score.before, score.after, estimate=score.estimate, over=score.over
    )


def _lost_runs(before: Sequence[Run], after: Sequence[Run], unfinished: Iterable[Run]) -> tuple[LostRun, ...]:
    finished = {(run.role, run.model, run.seed) for run in after}
    reasons = {
        (run.role, run.model, run.seed): ": ".join(filter(None, (run.status, run.error_class, run.reason)))
        for run in unfinished
    }
    lost = []
    for run in before:
        identity = run.role, run.model, run.seed
        if identity not in finished:
            lost.append(LostRun(run.model, run.seed, reasons.get(identity, "it was not planned")))
    return tuple(lost)
