"""The Method page: conditions of every table, metrics, places and costs, and what tuned settings were chosen from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reports.html.plots import Plot, Series, legend, search_plot
from reports.tables import numbers
from reports.tables.boards import field_value, signature_text
from reports.tables.contents import Contents
from reports.tables.facts import control_sentences
from reports.tables.fields import FIELDS, METRICS, ROLES
from results.runs.controls import Controls
from results.runs.leaderboard import Group
from results.runs.run import Run
from results.runs.standings import Comparisons


@dataclass(frozen=True, slots=True)
class TuningFacts:
    """The trials of a table's models: a plot, its legend, the budget, and what is not drawn."""

    plot: Plot
    legend: list[Series]
    budget: str
    left_out: str


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions of one table, its signature to copy, its test, controls and tuning, and the models of its rows.

    `fields` are name, value, meaning, and whether a field separates the table from others of its split.
    """

    id: str
    title: str
    models: tuple[str, ...]
    fields: list[tuple[str, str, str, bool]]
    signature: str
    comparisons: Comparisons | None
    controls: tuple[str, ...]
    tuning: TuningFacts | None


@dataclass(frozen=True, slots=True)
class Method:
    tables: list[Conditions]
    metrics: list[tuple[str, str]]
    levels: list[tuple[str, str, str]]
    costs: list[tuple[str, str]]


def method(contents: Contents, colour: Mapping[str, int]) -> Method:
    groups, runs = contents.groups, contents.runs
    shown = [row for group in groups for row in (*group.rows, *group.references)]
    scored = (scores for row in shown for scores in (row.scores, *row.domains.values()))
    metrics = numbers.metric_order(name for scores in scored for name in scores)
    models = {row.model for row in shown}
    units = {name: cost.unit for run in runs.values() for name, cost in run.costs.items()}
    kinds = [numbers.cost_kind(name, units[name]) for name in numbers.cost_order(units)]
    beside = {id(group): found for group, found in zip(groups, contents.controls, strict=True)}
    ranked = [group for group in groups if group.rows]
    # The tables of a tuning's splits have the same trials behind them: the first shows them.
    first = {(group.signature.get("tuned"), group.fingerprint): id(group) for group in reversed(ranked)}
    searched = {place: tuning(group, runs, colour) for group in ranked if (place := id(group)) in first.values()}
    return Method(
        tables=[
            _conditions(f"conditions-{number}", group, contents, beside[id(group)], searched.get(id(group)))
            for number, group in enumerate(ranked, start=1)
        ],
        metrics=[(name, METRICS[name]) for name in metrics if name in METRICS],
        levels=[(name, *ROLES[name]) for name in ROLES if name in models],
        costs=[(kind.label, kind.meaning) for kind in kinds],
    )


def tuning(group: Group, runs: Mapping[str, Run], colour: Mapping[str, int]) -> TuningFacts | None:
    label = group.signature.get("tuned")
    if label is None:
        return None
    by_model = {row.model: _trials(runs[row.keys[0]]) for row in group.rows}
    series = [_series(model, colour[model], trials) for model, trials in by_model.items()]
    plot = search_plot("TuningFacts", "learning rate", "best validation CIDEr-D of a trial", series)
    if plot is None:
        return None
    searched, _, finals = label.partition("#")[0].partition("+")
    count, _, updates = searched.partition("x")
    finalists, _, seeds = finals.partition("x")
    again = f"; then the best {finalists} and the preset again, with {seeds} further seeds" if finals else ""
    unscored = sum(score is None for found in by_model.values() for _, score in found)
    unknown = [model for model, found in by_model.items() if not found]
    trials = "1 trial that was" if unscored == 1 else f"{unscored} trials that were"
    said = [f"{trials} stopped early or diverged {'is' if unscored == 1 else 'are'} not drawn"] if unscored else []
    said += [f"the runs of {', '.join(unknown)} do not store their trials"] if unknown else []
    return TuningFacts(
        plot=plot,
        legend=legend((drawn.series.name for drawn in plot.drawn), by_model, colour),
        budget=f"{count} trials of at most {updates} updates for each model, the untuned preset among them{again}",
        left_out="; ".join(said),
    )


def _conditions(id: str, group: Group, contents: Contents, controls: Controls, tuned: TuningFacts | None) -> Conditions:
    names = ["split", *(name for name in ("track",) if name not in group.signature), *group.signature]
    values = {"split": group.split} | {name: field_value(group, name) for name in names if name != "split"}
    return Conditions(
        id=id,
        title=contents.title(group),
        models=tuple(dict.fromkeys(row.model for row in group.rows)),
        fields=[(name, values[name], FIELDS.get(name, ""), name in group.separating) for name in dict.fromkeys(names)],
        signature=signature_text(group.signature, group.split),
        comparisons=group.comparisons,
        controls=control_sentences(controls),
        tuning=tuned,
    )


def _trials(run: Run) -> list[tuple[float, float | None]]:
    found = run.config.get("tuning", {}).get("trials", [])
    return [(trial["learning_rate"], trial["score"]) for trial in found]


def _series(model: str, colour: int, trials: list[tuple[float, float | None]]) -> Series:
    points = sorted((rate, 100 * score) for rate, score in trials if score is not None)
    if not points:
        return Series(model, colour, ())
    rate, score = max(points, key=lambda point: point[1])
    title = f"{model}: best {score:.1f} at {rate:.2g}, of {len(points)} trials"
    return Series(model, colour, tuple(points), title)
