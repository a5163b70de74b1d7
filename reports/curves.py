"""Learning curves: one line a row of the leaderboard, over its seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from reports.plots import Plot, Series, line_plot
from results.records import EpochRecord
from results.views import Group, RunDetail

Points = dict[int, list[float]]


@dataclass(frozen=True, slots=True)
class CurveLine:
    """One run's summary under the plots; epochs are counted over all stages, from 1."""

    name: str
    key: str
    epochs: int
    loss: float
    best: float | None
    best_epoch: int | None


@dataclass(frozen=True, slots=True)
class CurveSection:
    """Learning curves of one data set: plots, their legend as (name, colour), and a line a run."""

    id: str
    title: str
    legend: list[tuple[str, int]]
    plots: list[Plot]
    lines: list[CurveLine]


def run_name(run: RunDetail) -> str:
    """A run as people call it."""
    return f"{run.model}, seed {run.seed}"


def curve_sections(
    groups: Sequence[Group], runs: Mapping[str, RunDetail], colour: Mapping[str, int]
) -> list[CurveSection]:
    """Learning curves by data set and track; runs that did not finish have lines of their own."""
    rows = dict.fromkeys(row.keys for group in groups for row in group.rows)
    ranked = {key for keys in rows for key in keys}
    alone = [(key,) for key in runs if key not in ranked]
    by_data: dict[tuple[str, str], list[list[RunDetail]]] = {}
    for keys in (*rows, *alone):
        members = [runs[key] for key in keys if runs[key].epochs]
        if members:
            by_data.setdefault((members[0].dataset, members[0].track), []).append(members)
    return [
        CurveSection(
            id=f"curves-{number}",
            title=f"{dataset}, {track} track",
            legend=[(name, colour[name]) for name in sorted({members[0].model for members in found})],
            plots=curve_plots(found, colour),
            lines=[curve_line(run) for members in found for run in members],
        )
        for number, ((dataset, track), found) in enumerate(by_data.items(), start=1)
    ]


def curve_plots(rows: Sequence[Sequence[RunDetail]], colour: Mapping[str, int]) -> list[Plot]:
    """Validation CIDEr-D and training loss by epoch: the mean over a row's seeds, and a band from least to most."""
    cider, loss = [], []
    for members in rows:
        validated = _by_epoch(members, lambda epoch: None if epoch.val_cider is None else 100 * epoch.val_cider)
        losses = _by_epoch(members, lambda epoch: epoch.train_loss)
        name = run_name(members[0]) if len(members) == 1 else f"{members[0].model}, {len(members)} seeds"
        hue = colour[members[0].model]
        cider.append(_series(members[0].model, hue, validated, name, 1))
        loss.append(_series(members[0].model, hue, losses, name, 3))
    x_range = (1.0, float(max((len(run.epochs) for members in rows for run in members), default=1)))
    lowest = min((y for one in loss for _, y in one.points), default=0.0)
    plots = (
        line_plot("Validation", "epoch", "CIDEr-D", cider, x_range=x_range, y_from=0.0),
        line_plot("Training", "epoch", "loss", loss, x_range=x_range, y_from=lowest),
    )
    return [plot for plot in plots if plot is not None]


def curve_line(run: RunDetail) -> CurveLine:
    """Last loss and best validation of a run that has epochs."""
    scored = [(epoch.val_cider, number) for number, epoch in enumerate(run.epochs, 1) if epoch.val_cider is not None]
    best, at = max(scored, key=lambda pair: pair[0]) if scored else (None, None)
    return CurveLine(run_name(run), run.key, len(run.epochs), run.epochs[-1].train_loss, best, at)


def _by_epoch(runs: Iterable[RunDetail], value: Callable[[EpochRecord], float | None]) -> Points:
    found: Points = {}
    for run in runs:
        for number, epoch in enumerate(run.epochs, start=1):
            seen = value(epoch)
            if seen is not None:
                found.setdefault(number, []).append(seen)
    return dict(sorted(found.items()))


def _series(model: str, colour: int, values: Points, name: str, decimals: int) -> Series:
    points = tuple((float(number), fmean(seen)) for number, seen in values.items())
    several = any(len(seen) > 1 for seen in values.values())
    band = tuple((float(number), min(seen), max(seen)) for number, seen in values.items()) if several else ()
    last = f"{points[-1][1]:.{decimals}f} at epoch {points[-1][0]:.0f}" if points else "no epoch"
    return Series(model, colour, points, f"{name}: {last}", band=band)
