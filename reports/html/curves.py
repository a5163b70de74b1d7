"""Learning curves: one line a row of the leaderboard, over its seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from reports.html.plots import Entry, Plot, Series, legend, line_plot
from reports.tables.boards import in_order
from reports.tables.contents import Contents
from reports.tables.table import differences
from results.records import EpochRecord
from results.runs.learning import learning_of_epochs
from results.runs.views import RunDetail
from results.statistics.learning import mean_learning

Points = dict[int, list[float]]
_Conditions = tuple[str, str, frozenset[tuple[str, str]]]


@dataclass(frozen=True, slots=True)
class CurveLine:
    """One run's summary under the plots; epochs are counted over all stages, from 1.

    `ended` says whether it had finished learning.
    """

    name: str
    model: str
    key: str
    epochs: int
    loss: float
    best: float | None
    best_epoch: int | None
    ended: str


@dataclass(frozen=True, slots=True)
class CurveSection:
    """Learning curves under the same conditions: plots, their legend, and a line a run.

    `apart` is what separates the conditions from those of the data set's other sections.
    """

    id: str
    title: str
    track: str
    apart: str
    legend: list[Entry]
    plots: list[Plot]
    lines: list[CurveLine]


def run_name(run: RunDetail) -> str:
    """A run's display name."""
    return f"{run.model}, seed {run.seed}"


def curve_sections(contents: Contents, colour: Mapping[str, int]) -> list[CurveSection]:
    """Learning curves by conditions, those of most rows first; runs that did not finish have lines of their own.

    Losses of other objectives or data lie on other scales, and lines of one model would look alike.
    """
    runs = contents.runs
    rows = {row.keys: differences(row.differs) for group in contents.groups for row in group.rows}
    ranked = {key for keys in rows for key in keys}
    rows |= {(key,): "" for key in runs if key not in ranked}
    ranking = [row.model for group in contents.groups for row in group.rows]
    sections: dict[_Conditions, list[list[RunDetail]]] = {}
    differing: dict[str, str] = {}
    for keys, differs in rows.items():
        members = [runs[key] for key in keys if runs[key].epochs]
        if members:
            sections.setdefault(_conditions(members[0]), []).append(members)
            differing |= {run.key: differs for run in members}
    return [
        CurveSection(
            id=f"curves-{number}",
            title=conditions[0],
            track=conditions[1],
            apart=_apart(conditions, sections),
            legend=legend(
                (members[0].model for members in found),
                ranking,
                colour,
                {members[0].model for members in found if _is_open(members)},
            ),
            plots=curve_plots(found, colour),
            lines=[curve_line(run, differing[run.key]) for members in found for run in members],
        )
        for number, (conditions, found) in enumerate(sections.items(), start=1)
    ]


def _conditions(run: RunDetail) -> _Conditions:
    return run.dataset, run.track, frozenset(run.signature.items())


def _apart(own: _Conditions, sections: Iterable[_Conditions]) -> str:
    """The fields that differ between the sections of a data set, with this one's values."""
    rivals = [set(signature) for dataset, _, signature in sections if dataset == own[0]]
    common = set.intersection(*rivals)
    separating = in_order(dict(sorted(set(own[2]) - common)))
    return ", ".join(f"{name}: {value}" for name, value in separating.items() if name != "track")


def curve_plots(rows: Sequence[Sequence[RunDetail]], colour: Mapping[str, int]) -> list[Plot]:
    """Validation CIDEr-D and training loss by epoch: the mean over a row's seeds, and a band from least to most."""
    cider, loss = [], []
    for members in rows:
        validated = _by_epoch(members, lambda epoch: None if epoch.val_cider is None else 100 * epoch.val_cider)
        losses = _by_epoch(members, lambda epoch: epoch.train_loss)
        name = run_name(members[0]) if len(members) == 1 else f"{members[0].model}, {len(members)} seeds"
        hue = colour[members[0].model]
        cider.append(_series(members, hue, validated, name, 1))
        loss.append(_series(members, hue, losses, name, 3))
    x_range = (1.0, float(max((len(run.epochs) for members in rows for run in members), default=1)))
    lowest = min((y for one in loss for _, y in one.points), default=0.0)
    plots = (
        line_plot("Validation", "epoch", "CIDEr-D", cider, x_range=x_range, y_from=0.0),
        line_plot("Training", "epoch", "loss", loss, x_range=x_range, y_from=lowest),
    )
    return [plot for plot in plots if plot is not None]


def curve_line(run: RunDetail, differs: str = "") -> CurveLine:
    """Last loss and best validation of a run that has epochs; `differs` sets it apart from runs of its model."""
    scored = [(epoch.val_cider, number) for number, epoch in enumerate(run.epochs, 1) if epoch.val_cider is not None]
    best, at = max(scored, key=lambda pair: pair[0]) if scored else (None, None)
    name = f"{run_name(run)} ({differs})" if differs else run_name(run)
    return CurveLine(name, run.model, run.key, len(run.epochs), run.epochs[-1].train_loss, best, at, training_end(run))


def training_end(run: RunDetail) -> str:
    """Whether a run that has epochs had finished learning, with the rise of its last quarter if known."""
    ended = learning_of_epochs(run.epochs, run.config)
    if ended is None or ended.state == "unknown":
        return "too few validations to say"
    if ended.rise is None or ended.error is None:
        return ended.state
    error = f" ± {100 * ended.error:.1f}" if ended.error else ""  # a curve that only rises shows none
    return f"{ended.state}{', fell' if ended.fell else ''} ({100 * ended.rise:+.1f}{error})"


def _by_epoch(runs: Iterable[RunDetail], value: Callable[[EpochRecord], float | None]) -> Points:
    found: Points = {}
    for run in runs:
        for number, epoch in enumerate(run.epochs, start=1):
            seen = value(epoch)
            if seen is not None:
                found.setdefault(number, []).append(seen)
    return dict(sorted(found.items()))


def _is_open(runs: Iterable[RunDetail]) -> bool:
    """Whether runs of one row were still learning when their training ended, on average."""
    ended = [learning_of_epochs(run.epochs, run.config) for run in runs]
    return mean_learning([each for each in ended if each is not None]).state == "still learning"


def _series(runs: Sequence[RunDetail], colour: int, values: Points, name: str, decimals: int) -> Series:
    points = tuple((float(number), fmean(seen)) for number, seen in values.items())
    several = any(len(seen) > 1 for seen in values.values())
    band = tuple((float(number), min(seen), max(seen)) for number, seen in values.items()) if several else ()
    last = f"{points[-1][1]:.{decimals}f} at epoch {points[-1][0]:.0f}" if points else "no epoch"
    is_open = _is_open(runs)
    title = f"{name}: {last}{', still learning' if is_open else ''}"
    return Series(runs[0].model, colour, points, title, band=band, open_end=is_open)
