"""What a tuned table's values were chosen from: validation CIDEr-D of the trials over their learning rate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reports.html.legend import Entry, legend
from reports.html.plots import Plot, Series, search_plot
from results.runs.leaderboard import Group
from results.runs.run import Run

Trials = list[tuple[float, float | None]]


@dataclass(frozen=True, slots=True)
class Tuning:
    """The trials of a table's models: a plot, its legend, the budget, and what is not drawn."""

    plot: Plot
    legend: list[Entry]
    budget: str
    left_out: str


def tuning(group: Group, runs: Mapping[str, Run], colour: Mapping[str, int]) -> Tuning | None:
    """The trials that the models of a tuned table store; None for an untuned one, or where no trial has a score."""
    label = group.signature.get("tuned")
    if label is None:
        return None
    by_model = {row.model: _trials(runs[row.keys[0]]) for row in group.rows}
    series = [_series(model, colour[model], trials) for model, trials in by_model.items()]
    plot = search_plot("Tuning", "learning rate", "best validation CIDEr-D of a trial", series)
    if plot is None:
        return None
    count, _, updates = label.partition("#")[0].partition("x")
    unscored = sum(score is None for found in by_model.values() for _, score in found)
    unknown = [model for model, found in by_model.items() if not found]
    trials = "1 trial that was" if unscored == 1 else f"{unscored} trials that were"
    said = [f"{trials} stopped early or diverged {'is' if unscored == 1 else 'are'} not drawn"] if unscored else []
    said += [f"the runs of {', '.join(unknown)} do not store their trials"] if unknown else []
    return Tuning(
        plot=plot,
        legend=legend((drawn.series.name for drawn in plot.drawn), by_model, colour),
        budget=f"{count} trials of at most {updates} updates for each model, the untuned preset among them",
        left_out="; ".join(said),
    )


def _trials(run: Run) -> Trials:
    """Learning rate and score, None where it has none, of each trial."""
    found = run.config.get("tuning", {}).get("trials", [])
    return [(trial["learning_rate"], trial["score"]) for trial in found]


def _series(model: str, colour: int, trials: Trials) -> Series:
    points = sorted((rate, 100 * score) for rate, score in trials if score is not None)
    if not points:
        return Series(model, colour, ())
    rate, score = max(points, key=lambda point: point[1])
    title = f"{model}: best {score:.1f} at {rate:.2g}, of {len(points)} trials"
    return Series(model, colour, tuple(points), title)
