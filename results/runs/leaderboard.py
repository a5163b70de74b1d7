"""The leaderboard: comparable runs grouped by signature and split, and ranked within each group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from results.errors import StoreError
from results.records import CODE_FIELDS
from results.runs.finished_runs import FinishedRun, finished_runs, scores_to_test
from results.runs.learning import learning_of_runs
from results.runs.machines import Phase, machines_of_most
from results.runs.pretraining import stored_pretraining
from results.runs.provenance import outdated
from results.runs.reseeding import reseeding, with_reseeding
from results.runs.spreads import row_costs, spreads
from results.runs.standings import AT_CHANCE, Rows, Scored, standings, why_unfinished
from results.runs.views import Group, Row
from results.statistics.learning import Learning
from results.store.store import Store

RANKING_METRIC = "CIDEr-D"


@dataclass(frozen=True, slots=True)
class _Context:
    """What all groups share: the metric that sorts, images' scores by metric, and how trainings ended, by run id."""

    metric: str
    scored: Scored
    learning: Mapping[int, Learning]
    place_unfinished: bool

    def unfinished(self, rows: Rows) -> dict[int, str]:
        """Row numbers of those that get no place, since they had not finished learning, and why."""
        reasons = {number: why_unfinished(runs, self.learning) for number, runs in enumerate(rows)}
        wanted = {AT_CHANCE} if self.place_unfinished else set(reasons.values()) - {None}
        return {number: reason for number, reason in reasons.items() if reason is not None and reason in wanted}


def leaderboard(
    store: Store, metric: str = RANKING_METRIC, *, place_unfinished: bool = False, every_metric: bool = True
) -> list[Group]:
    """The groups of every data set, in the order they were first planned, their rows sorted by `metric`.

    Rows that differ in any field of the signature, in the track or in the data's fingerprint never share a group.
    With `place_unfinished`, rows that had not finished learning have places too, but those at the level of chance.
    Without `every_metric`, only the scores of `metric` are tested: the others have neither places nor, of several
    seeds, intervals.

    Raises:
        StoreError: no run has a score of this metric.
    """
    with store.reading() as connection:
        runs = finished_runs(connection)
        older = outdated(runs)
        ended = learning_of_runs(connection, runs)
        metrics = dict.fromkeys(name for run in runs for of in run.scores.values() for name in of["overall"])
        tested = [name for name in metrics if every_metric or name == metric]
        scored = {name: scores_to_test(connection, runs, name) for name in tested}
    if runs and metric not in metrics:
        raise StoreError(f"no run has a score of {metric!r}", f"choose of {', '.join(metrics)}")
    ranked: dict[tuple[object, str], list[FinishedRun]] = {}
    beside: dict[tuple[str, str], list[FinishedRun]] = {}
    for run in runs:
        for split in run.scores:
            if run.role == "model":
                ranked.setdefault((run.comparable, split), []).append(run)
            else:
                beside.setdefault((run.fingerprint, split), []).append(run)

    context = _Context(metric, scored, ended, place_unfinished)
    groups = [_group(members, split, beside, context) for (_, split), members in ranked.items()]
    finished = {place: max(run.finished_at for run in of).timestamp() for place, of in enumerate(ranked.values())}
    groups = with_reseeding(groups, finished)
    accompanied = {(group.fingerprint, group.split) for group in groups}
    groups += [
        Group(
            runs[0].dataset,
            fingerprint,
            split,
            runs[0].track,
            {},
            (),
            _references(_newest(runs, {}), split, {}, context),
            (),
            metric=metric,
        )
        for (fingerprint, split), runs in beside.items()
        if (fingerprint, split) not in accompanied
    ]
    groups = [replace(group, separating=_separating(group, groups)) for group in groups]
    return [_dated(group, older) for group in groups]


def _dated(group: Group, older: Mapping[str, str]) -> Group:
    """The group, its rows that older code made marked as outdated."""
    ranked, beside = (
        tuple(replace(row, outdated=older.get(row.keys[-1])) for row in rows) for rows in (group.rows, group.references)
    )
    return replace(group, rows=ranked, references=beside)


def rows_of(runs: Iterable[FinishedRun]) -> list[list[FinishedRun]]:
    """The runs of each row, ascending by seed: same conditions, model and configuration, whatever the seed."""
    rows: dict[object, list[FinishedRun]] = {}
    for run in runs:
        row = (run.comparable, run.role, run.model, frozenset(run.variant.items()))
        rows.setdefault(row, []).append(run)
    return [sorted(members, key=lambda run: run.seed) for members in rows.values()]


def _group(
    members: Sequence[FinishedRun],
    split: str,
    beside: Mapping[tuple[str, str], Sequence[FinishedRun]],
    context: _Context,
) -> Group:
    first = members[0]
    rows = []
    by_row, machines = rows_of(members), machines_of_most(run.environment for run in members)
    for runs in by_row:
        rivals = [other[0].variant for other in by_row if other[0].model == runs[0].model]
        rows.append((_row(runs, split, _differences(runs[0].variant, rivals), context, machines), runs))
    rows.sort(key=lambda pair: _rank(pair[0], context.metric))
    references = _newest(beside.get((first.fingerprint, split), ()), first.conditions)
    sorted_runs = [runs for _, runs in rows]
    unfinished = context.unfinished(sorted_runs)
    found, test = standings(sorted_runs, rows_of(references), split, context.scored, context.metric, unfinished)
    return Group(
        dataset=first.dataset,
        fingerprint=first.fingerprint,
        split=split,
        track=first.track,
        signature=first.signature,
        rows=tuple(replace(row, standings=of) for (row, _), of in zip(rows, found, strict=True)),
        references=_references(references, split, first.conditions, context),
        separating=(),
        test=test,
        metric=context.metric,
        reseeding=reseeding(by_row, split, context.metric),
    )


def _references(
    runs: Sequence[FinishedRun], split: str, conditions: Mapping[str, str], context: _Context
) -> tuple[Row, ...]:
    """Rows of references; they differ from the `conditions` of the group, where it has any."""
    group = [conditions] if conditions else []
    machines = machines_of_most(run.environment for run in runs)
    rows = [_row(row, split, _differences(row[0].conditions, group), context, machines) for row in rows_of(runs)]
    return tuple(sorted(rows, key=lambda row: _rank(row, context.metric)))


def _newest(runs: Sequence[FinishedRun], conditions: Mapping[str, str]) -> list[FinishedRun]:
    """Of a reference that several codes made, the one of the group's results revision, or else the last."""
    by_code: dict[object, list[FinishedRun]] = {}
    for run in runs:
        same = frozenset(item for item in run.conditions.items() if item[0] not in CODE_FIELDS)
        by_code.setdefault((run.model, run.seed, same), []).append(run)
    revision = conditions.get("rev")
    chosen = (
        [run for run in same if run.signature.get("rev") == revision][-1:] or same[-1:] for same in by_code.values()
    )
    return [run for found in chosen for run in found]


def _row(
    runs: Sequence[FinishedRun],
    split: str,
    differs: dict[str, str | None],
    context: _Context,
    machines: Mapping[Phase, str],
) -> Row:
    domains = list(dict.fromkeys(domain for run in runs for domain in run.scores[split] if domain != "overall"))
    scored = {
        metric: {run.seed: of_run for run in runs if (of_run := by_run.get((run.id, split)))}
        for metric, by_run in context.scored.items()
    }
    costs, other_machines = row_costs(runs, machines)
    return Row(
        model=runs[0].model,
        role=runs[0].role,
        seeds=tuple(run.seed for run in runs),
        keys=tuple(run.key for run in runs),
        scores=spreads({run.seed: run.scores[split]["overall"] for run in runs}, scored),
        domains={domain: spreads({run.seed: run.scores[split].get(domain, {}) for run in runs}) for domain in domains},
        costs=costs,
        other_machines=other_machines,
        code_version=runs[0].code_version,
        differs=differs,
        pretraining=stored_pretraining(runs[0].config),
        held_out=spreads({run.seed: run.held_out.get(split, {}) for run in runs}),
        more=spreads({run.seed: run.more.get(split, {}) for run in runs}),
        learning={run.seed: context.learning[run.id] for run in runs if run.id in context.learning},
    )


def _rank(row: Row, metric: str) -> tuple[bool, float, str]:
    """Best mean first, rows without one last, by name."""
    spread = row.scores.get(metric)
    mean = None if spread is None else spread.mean
    return mean is None, -(mean or 0.0), row.model


def _differences(own: Mapping[str, str], others: Sequence[Mapping[str, str]]) -> dict[str, str | None]:
    """Fields in which any of the others differs, with one's own value; None where one has no such field."""
    names = dict.fromkeys(name for fields in (own, *others) for name in fields)
    return {name: own.get(name) for name in names if any(other.get(name) != own.get(name) for other in others)}


def _separating(group: Group, groups: Sequence[Group]) -> tuple[str, ...]:
    rivals = [other for other in groups if (other.dataset, other.split) == (group.dataset, group.split)]
    return tuple(_differences(_identity(group), [_identity(other) for other in rivals]))


def _identity(group: Group) -> dict[str, str]:
    return {"data": group.fingerprint, "track": group.track, **group.signature}
