"""Pages of the models: paper, configuration, every run, environment, and what the papers print."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reports.html.model_results import ExamplesByRun, Result, model_costs, model_results
from reports.html.pages import model_page
from reports.tables import numbers, table_values
from reports.tables.deviations import Deviations, deviations
from reports.tables.facts import ModelCard, card, objective
from reports.tables.fields import ROLES
from reports.tables.printed import PrintedRow, printed_table, published_beside
from reports.tables.table_values import Notes, TableValue
from results.records import Quantity
from results.runs.leaderboard import Group
from results.runs.run import DatasetInfo, Run


@dataclass(frozen=True, slots=True)
class ModelRun:
    """One run of a model: its conditions and main score."""

    run: Run
    objective: str
    split: str
    score: TableValue


@dataclass(frozen=True, slots=True)
class ModelPage:
    """Everything about one model; settings and environment that runs do not share are "differs between runs".

    `presets` are those that its runs were planned with, and what they changed. `beside` names the nearest printed score
    of each of its scores, and the conditions that differ.
    """

    file: str
    name: str
    card: ModelCard
    level: str
    configuration: list[tuple[str, str]]
    environment: list[tuple[str, str]]
    runs: list[ModelRun]
    results: tuple[Result, ...]
    costs: list[tuple[str, str, TableValue]]
    presets: tuple[Deviations, ...]
    metrics: tuple[str, ...]
    printed: dict[str, list[PrintedRow]]
    beside: tuple[str, ...]

    @property
    def is_reference(self) -> bool:
        """Whether it is a level to compare with, and no model."""
        return all(each.run.role == "reference" for each in self.runs)


def model_pages(
    runs: Sequence[Run],
    groups: Sequence[Group],
    datasets: Sequence[DatasetInfo],
    examples: Mapping[tuple[str, str], ExamplesByRun],
) -> list[ModelPage]:
    """A page for every model that was planned, in the order of names.

    Args:
        examples: of captions, by data and split.
    """
    by_model: dict[str, list[Run]] = {}
    for run in runs:
        by_model.setdefault(run.model, []).append(run)
    found = []
    for name, members in sorted(by_model.items()):
        metrics, printed = printed_table(name)
        # The card is shown as a whole, the trials of a tuning as a plot.
        configurations = [
            flat({key: value for key, value in run.config.items() if key not in {"card", "tuning"}}) for run in members
        ]
        found.append(
            ModelPage(
                file=model_page(name),
                name=name,
                card=next((found for found in map(card, members) if found.pretraining), card(members[0])),
                level=ROLES.get(name, ("", ""))[1],
                configuration=_shared(configurations),
                environment=_shared([flat(run.environment) for run in members if run.environment]),
                runs=[_run(run) for run in members],
                results=model_results(name, groups, datasets, examples),
                costs=model_costs(name, groups),
                presets=tuple(dict.fromkeys(changed for run in members if (changed := deviations(run.config)))),
                metrics=metrics,
                printed=printed,
                beside=tuple(dict.fromkeys(said for run in members for said in published_beside(run))),
            )
        )
    return found


def flat(value: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested settings as dotted names with their values as text."""
    found: list[tuple[str, str]] = []
    for name, entry in value.items():
        if isinstance(entry, Mapping) and entry:
            found += flat(entry, f"{prefix}{name}.")
        elif isinstance(entry, list) and any(isinstance(item, Mapping) for item in entry):
            found += flat({str(number): item for number, item in enumerate(entry, start=1)}, f"{prefix}{name}.")
        else:
            found.append((f"{prefix}{name}", _text(entry)))
    return found


def _text(entry: object) -> str:
    if entry is None:
        return numbers.DASH
    return json.dumps(entry, ensure_ascii=False) if isinstance(entry, list | dict) else str(entry)


def _shared(settings: Sequence[list[tuple[str, str]]]) -> list[tuple[str, str]]:
    by_name: dict[str, set[str]] = {}
    for each in settings:
        for name, value in each:
            by_name.setdefault(name, set()).add(value)
    return [(name, next(iter(seen)) if len(seen) == 1 else "differs between runs") for name, seen in by_name.items()]


def _run(run: Run) -> ModelRun:
    split = "test" if "test" in run.scores else next(iter(run.scores), "")
    missing = Quantity(None, f"the run is {run.state}")
    score = run.scores.get(split, {}).get("overall", {}).get("CIDEr-D", missing)
    return ModelRun(run, objective(run), split, table_values.quantity_value(score, Notes()))
