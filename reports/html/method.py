"""The Method page: conditions of every table, metrics, places and costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reports.tables import numbers
from reports.tables.boards import signature_text
from reports.tables.contents import Contents
from reports.tables.facts import control_sentences
from reports.tables.fields import FIELDS, METRICS, ROLES
from results.runs.controls import Controls
from results.runs.leaderboard import Group
from results.runs.standings import Comparisons


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions of one table; `fields` are name, value, meaning, and whether one separates the table."""

    id: str
    title: str
    models: tuple[str, ...]
    fields: list[tuple[str, str, str, bool]]
    signature: str
    comparisons: Comparisons | None
    controls: tuple[str, ...]
    tuning: str


def method(contents: Contents) -> dict[str, Any]:
    """What the page shows: the conditions of every table, and what its metrics, levels and costs mean."""
    groups, runs = contents.groups, contents.runs
    shown = [row for group in groups for row in (*group.rows, *group.references)]
    scored = (scores for row in shown for scores in (row.scores, *row.domains.values()))
    metrics = numbers.metric_order(name for scores in scored for name in scores)
    models = {row.model for row in shown}
    units = {name: cost.unit for run in runs.values() for name, cost in run.costs.items()}
    kinds = [numbers.cost_kind(name, units[name]) for name in numbers.cost_order(units)]
    ranked = ((group, of) for group, of in zip(groups, contents.controls, strict=True) if group.rows)
    return {
        "tables": [
            _conditions(f"conditions-{number}", group, contents, found)
            for number, (group, found) in enumerate(ranked, start=1)
        ],
        "metrics": [(name, METRICS[name]) for name in metrics if name in METRICS],
        "levels": [(name, *ROLES[name]) for name in ROLES if name in models],
        "costs": [(kind.label, kind.meaning) for kind in kinds],
    }


def _tuning(label: str | None) -> str:
    """The field `tuned` of a signature, such as "12x300+2x2#1a2b3c", in words; "" where nothing was tuned."""
    if label is None:
        return ""
    searched, _, finals = label.partition("#")[0].partition("+")
    count, _, updates = searched.partition("x")
    finalists, _, seeds = finals.partition("x")
    again = f"; then the best {finalists} and the preset again, with {seeds} further seeds" if finals else ""
    return f"{count} trials of at most {updates} updates for each model, the untuned preset among them{again}"


def _conditions(id: str, group: Group, contents: Contents, controls: Controls) -> Conditions:
    track = {} if "track" in group.signature else {"track": group.track}
    values = {"split": group.split} | track | group.signature
    return Conditions(
        id=id,
        title=contents.title(group),
        models=tuple(dict.fromkeys(row.model for row in group.rows)),
        fields=[(name, value, FIELDS.get(name, ""), name in group.separating) for name, value in values.items()],
        signature=signature_text(group.signature, group.split),
        comparisons=group.comparisons,
        controls=control_sentences(controls),
        tuning=_tuning(group.signature.get("tuned")),
    )
