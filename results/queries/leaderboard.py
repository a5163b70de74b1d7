"""The leaderboard: comparable runs grouped by signature and split, and ranked within each group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, stdev

from results.db.store import Store
from results.queries.finished_runs import ByImage, FinishedRun, finished_runs, image_scores
from results.queries.floors import FLOORS, floor_rows, floor_tests
from results.queries.pretraining import stored_pretraining
from results.queries.provenance import outdated
from results.queries.tiers import assign_tiers, significance_test
from results.queries.views import Group, Row, SignificanceTest, Spread, Standing
from results.records import CODE_FIELDS, Quantity

RANKING_METRIC = "CIDEr-D"


def leaderboard(store: Store) -> list[Group]:
    """The groups of every data set, in the order they were first planned.

    Rows that differ in any field of the signature, in the track or in the data's fingerprint never share a group.
    """
    with store.reading() as connection:
        runs = finished_runs(connection)
        older = outdated(runs)
        by_image = image_scores(connection, runs, RANKING_METRIC)
    ranked: dict[tuple[object, str], list[FinishedRun]] = {}
    beside: dict[tuple[str, str], list[FinishedRun]] = {}
    for run in runs:
        for split in run.scores:
            if run.role == "model":
                ranked.setdefault((run.comparable, split), []).append(run)
            else:
                beside.setdefault((run.fingerprint, split), []).append(run)

    groups = [_group(members, split, beside, by_image) for (_, split), members in ranked.items()]
    accompanied = {(group.fingerprint, group.split) for group in groups}
    groups += [
        Group(runs[0].dataset, fingerprint, split, runs[0].track, {}, (), _references(_newest(runs, {}), split, {}), ())
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
    by_image: Mapping[tuple[int, str], ByImage],
) -> Group:
    first = members[0]
    rows = []
    by_row = rows_of(members)
    for runs in by_row:
        rivals = [other[0].variant for other in by_row if other[0].model == runs[0].model]
        rows.append((_row(runs, split, _differences(runs[0].variant, rivals)), runs))
    rows.sort(key=lambda pair: _rank(pair[0]))
    references = _newest(beside.get((first.fingerprint, split), ()), first.conditions)
    found, test = _tiers([runs for _, runs in rows], rows_of(references), split, by_image)
    return Group(
        dataset=first.dataset,
        fingerprint=first.fingerprint,
        split=split,
        track=first.track,
        signature=first.signature,
        rows=tuple(replace(row, standing=standing) for (row, _), standing in zip(rows, found, strict=True)),
        references=_references(references, split, first.conditions),
        separating=(),
        test=test,
    )


def _tiers(
    rows: Sequence[Sequence[FinishedRun]],
    references: Sequence[Sequence[FinishedRun]],
    split: str,
    by_image: Mapping[tuple[int, str], ByImage],
) -> tuple[list[Standing | None], SignificanceTest | None]:
    """The standing of rows, best first: tested against the floors, and those above all floors against each other."""

    def scored(runs: Sequence[FinishedRun]) -> list[ByImage]:
        return [by_image[run.id, split] for run in runs]

    is_floor = [runs[0].model in FLOORS for runs in rows]
    scores = [scored(runs) for runs in rows]
    floors = [(runs[0].model, scored(runs)) for runs in floor_rows(rows, references)]
    tests = floor_tests([[] if floor else seeds for floor, seeds in zip(is_floor, scores, strict=True)], floors)
    above = [not floor and all(test.above for test in of) for floor, of in zip(is_floor, tests, strict=True)]
    found, test = assign_tiers(
        [seeds if over else [] for over, seeds in zip(above, scores, strict=True)], RANKING_METRIC
    )
    for place, against in enumerate(tests):
        if is_floor[place] and any(scores[place]):
            found[place] = Standing(None, is_floor=True)
        elif against:
            found[place] = replace(found[place] or Standing(None), floors=against)
    if number := sum(map(len, tests)):
        images = next(len(seed) for seeds, of in zip(scores, tests, strict=True) if of for seed in seeds if seed)
        test = significance_test(RANKING_METRIC, images, test.rows if test else 0, number)
    return found, test


def _references(runs: Sequence[FinishedRun], split: str, conditions: Mapping[str, str]) -> tuple[Row, ...]:
    """Rows of references; they differ from the `conditions` of the group, where it has any."""
    group = [conditions] if conditions else []
    rows = [_row(row, split, _differences(row[0].conditions, group)) for row in rows_of(runs)]
    return tuple(sorted(rows, key=_rank))


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


def _row(runs: Sequence[FinishedRun], split: str, differs: dict[str, str | None]) -> Row:
    domains = list(dict.fromkeys(domain for run in runs for domain in run.scores[split]))
    spreads = {domain: _spreads({run.seed: run.scores[split].get(domain, {}) for run in runs}) for domain in domains}
    names = dict.fromkeys(name for run in runs for name in run.costs)
    return Row(
        model=runs[0].model,
        role=runs[0].role,
        seeds=tuple(run.seed for run in runs),
        keys=tuple(run.key for run in runs),
        scores=spreads.pop("overall"),
        domains=spreads,
        costs={name: _mean_cost({run.seed: run.costs.get(name) for run in runs}) for name in names},
        code_version=runs[0].code_version,
        differs=differs,
        pretraining=stored_pretraining(runs[0].config),
        held_out=_spreads({run.seed: run.held_out.get(split, {}) for run in runs}),
    )


def _spreads(by_seed: Mapping[int, Mapping[str, Quantity]]) -> dict[str, Spread]:
    metrics = dict.fromkeys(metric for scores in by_seed.values() for metric in scores)
    return {metric: _spread({seed: scores.get(metric) for seed, scores in by_seed.items()}) for metric in metrics}


def _spread(by_seed: Mapping[int, Quantity | None]) -> Spread:
    values, reason = _measured(by_seed)
    measured = [each for each in by_seed.values() if each is not None and each.value is not None]
    return Spread(
        mean=fmean(values) if values else None,
        sd=stdev(values) if len(values) > 1 else None,
        n=len(values),
        reason=reason,
        low=_mean_bound([each.low for each in measured]),
        high=_mean_bound([each.high for each in measured]),
    )


def _mean_bound(bounds: Sequence[float | None]) -> float | None:
    known = [bound for bound in bounds if bound is not None]
    return fmean(known) if known and len(known) == len(bounds) else None


def _mean_cost(by_seed: Mapping[int, Quantity | None]) -> Quantity:
    values, reason = _measured(by_seed)
    measured = [cost for cost in by_seed.values() if cost is not None and cost.value is not None]
    unit = next((cost.unit for cost in by_seed.values() if cost is not None), "")
    if not values:
        return Quantity(None, reason, unit)
    low, high = _mean_bound([cost.low for cost in measured]), _mean_bound([cost.high for cost in measured])
    return Quantity(fmean(values), None, unit, low, high)


def _measured(by_seed: Mapping[int, Quantity | None]) -> tuple[list[float], str | None]:
    """The values of the seeds that have one, and why the others have none."""
    values, reasons = [], {}
    for seed, quantity in by_seed.items():
        if quantity is not None and quantity.value is not None:
            values.append(quantity.value)
        else:
            reasons[seed] = "not recorded" if quantity is None or quantity.reason is None else quantity.reason
    if len(reasons) == len(by_seed) and len(set(reasons.values())) == 1:
        return values, next(iter(reasons.values()))
    return values, "; ".join(f"seed {seed}: {reason}" for seed, reason in reasons.items()) or None


def _rank(row: Row) -> tuple[bool, float, str]:
    """Best mean CIDEr-D first, rows without one last, by name."""
    spread = row.scores.get(RANKING_METRIC)
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
