"""The Method page: conditions of every table, metrics, places and costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reports.html.tuning import Tuning, tuning
from reports.tables import numbers
from reports.tables.controls import control_sentences
from reports.tables.fields import FIELDS, METRICS, ROLES
from reports.tables.leaderboard_page import by_size, field_value, group_title
from reports.tables.tables import signature_text
from results.runs.controls import Controls
from results.runs.leaderboard import Group
from results.runs.run import DatasetInfo, Run
from results.runs.standings import SignificanceTest


@dataclass(frozen=True, slots=True)
class Condition:
    """One field of a signature: its name, what it means, its value, and whether it separates the group from others."""

    name: str
    meaning: str
    value: str
    separates: bool


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions of one table, its signature to copy, its test, controls and tuning, and the models of its rows."""

    id: str
    title: str
    models: tuple[str, ...]
    fields: tuple[Condition, ...]
    signature: str
    test: SignificanceTest | None
    controls: tuple[str, ...]
    tuning: Tuning | None


@dataclass(frozen=True, slots=True)
class Method:
    """The whole page: what is shown here is defined here, and nothing else."""

    tables: list[Conditions]
    metrics: list[tuple[str, str]]
    levels: list[tuple[str, str, str]]
    costs: list[tuple[str, str]]
    tests: list[SignificanceTest]


def method(
    groups: Sequence[Group],
    datasets: Sequence[DatasetInfo],
    runs: Mapping[str, Run],
    controls: Sequence[Controls],
    colour: Mapping[str, int],
) -> Method:
    """The page's contents for the groups and runs of a store.

    Args:
        controls: in the order of the groups.
        colour: of each model.
    """
    shown = [row for group in groups for row in (*group.rows, *group.references)]
    scored = (scores for row in shown for scores in (row.scores, *row.domains.values()))
    metrics = numbers.metric_order(name for scores in scored for name in scores)
    models = {row.model for row in shown}
    units = {name: cost.unit for run in runs.values() for name, cost in run.costs.items()}
    kinds = [numbers.cost_kind(name, units[name]) for name in numbers.cost_order(units)]
    beside = {id(group): found for group, found in zip(groups, controls, strict=True)}
    ranked = [group for group in by_size(groups) if group.rows]
    # The tables of a tuning's splits have the same trials behind them: the first shows them.
    first = {(group.signature.get("tuned"), group.fingerprint): id(group) for group in reversed(ranked)}
    searched = {place: tuning(group, runs, colour) for group in ranked if (place := id(group)) in first.values()}
    return Method(
        tables=[
            _conditions(f"conditions-{number}", group, datasets, beside[id(group)], searched.get(id(group)))
            for number, group in enumerate(ranked, start=1)
        ],
        metrics=[(name, METRICS[name]) for name in metrics if name in METRICS],
        levels=[(name, *ROLES[name]) for name in ROLES if name in models],
        costs=[(kind.label, kind.meaning) for kind in kinds],
        tests=list(dict.fromkeys(group.test for group in ranked if group.test is not None)),
    )


def _conditions(
    id: str, group: Group, datasets: Sequence[DatasetInfo], controls: Controls, tuned: Tuning | None
) -> Conditions:
    names = ["split", *(name for name in ("track",) if name not in group.signature), *group.signature]
    values = {"split": group.split} | {name: field_value(group, name) for name in names if name != "split"}
    fields = (
        Condition(name, FIELDS.get(name, ""), values[name], name in group.separating) for name in dict.fromkeys(names)
    )
    return Conditions(
        id=id,
        title=group_title(group, datasets),
        models=tuple(dict.fromkeys(row.model for row in group.rows)),
        fields=tuple(fields),
        signature=signature_text(group.signature, group.split),
        test=group.test,
        controls=control_sentences(controls),
        tuning=tuned,
    )
