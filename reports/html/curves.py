"""Learning curves: one line a row of the leaderboard, over its seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean

from reports.html.plots import Plot, Series, legend, line_plot
from reports.html.sections import Section
from reports.tables.boards import in_order
from reports.tables.contents import Contents
from reports.tables.numbers import DASH, percent
from reports.tables.table import Cell, Column, Line, Table, Told, differences
from results.records import EpochRecord
from results.runs.run import Run
from results.statistics.learning import mean_learning

Points = dict[int, list[float]]
_Conditions = tuple[str, str, frozenset[tuple[str, str]]]
_COLUMNS = tuple(
    Column(name, lambda *_: Cell(""), meaning, name, key != "loss", sortable=key != "ended", key=key)
    for key, name, meaning in (
        ("epochs", "Epochs", "over all stages"),
        ("loss", "Last training loss", "of its stage's objective"),
        ("best", "Best validation CIDEr-D", "times 100"),
        ("at", "at epoch", "of the best validation"),
        ("ended", "When it ended", "rise of the last quarter of validations, with its standard error; see Method"),
    )
)


def curve_sections(contents: Contents, colour: Mapping[str, int]) -> list[Section]:
    """Learning curves by conditions, those of most rows first; runs that did not finish have lines of their own.

    Losses of other objectives or data lie on other scales, and lines of one model would look alike.
    """
    runs = contents.runs
    rows = {row.keys: differences(row.differs) for group in contents.groups for row in group.rows}
    ranked = {key for keys in rows for key in keys}
    rows |= {(key,): "" for key in runs if key not in ranked}
    ranking = [row.model for group in contents.groups for row in group.rows]
    sections: dict[_Conditions, list[list[Run]]] = {}
    differing: dict[str, str] = {}
    for keys, differs in rows.items():
        members = [runs[key] for key in keys if runs[key].epochs]
        if members:
            sections.setdefault(_conditions(members[0]), []).append(members)
            differing |= {run.key: differs for run in members}
    return [
        Section(
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
            tables={"": Told(Table(_COLUMNS, tuple(_line(run, differing[run.key]) for of in found for run in of)))},
        )
        for number, (conditions, found) in enumerate(sections.items(), start=1)
    ]


def _conditions(run: Run) -> _Conditions:
    return run.dataset, run.track, frozenset(run.signature.items())


def _apart(own: _Conditions, sections: Iterable[_Conditions]) -> str:
    """The fields that differ between the sections of a data set, with this one's values."""
    rivals = [set(signature) for dataset, _, signature in sections if dataset == own[0]]
    common = set.intersection(*rivals)
    separating = in_order(dict(sorted(set(own[2]) - common)))
    return ", ".join(f"{name}: {value}" for name, value in separating.items() if name != "track")


def curve_plots(rows: Sequence[Sequence[Run]], colour: Mapping[str, int]) -> list[Plot]:
    """Validation CIDEr-D and training loss by epoch: the mean over a row's seeds, and a band from least to most."""
    cider, loss = [], []
    for members in rows:
        validated = _by_epoch(members, lambda epoch: None if epoch.val_cider is None else 100 * epoch.val_cider)
        losses = _by_epoch(members, lambda epoch: epoch.train_loss)
        name = f"{members[0].model}, " + (f"{len(members)} seeds" if len(members) > 1 else f"seed {members[0].seed}")
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


def training_end(run: Run) -> str:
    """Whether a run that has epochs had finished learning, with the rise of its last quarter if known."""
    ended = run.learning
    if ended is None or ended.state == "unknown":
        return "too few validations to say"
    if ended.rise is None or ended.error is None:
        return ended.state
    error = f" ± {100 * ended.error:.1f}" if ended.error else ""  # a curve that only rises shows none
    return f"{ended.state}{', fell' if ended.fell else ''} ({100 * ended.rise:+.1f}{error})"


def _line(run: Run, differs: str) -> Line:
    """Last loss and best validation of a run that has epochs, which are counted over all stages, from 1."""
    scored = [(epoch.val_cider, number) for number, epoch in enumerate(run.epochs, 1) if epoch.val_cider is not None]
    best, at = max(scored, key=lambda pair: pair[0]) if scored else (None, 0)
    loss, unscored = run.epochs[-1].train_loss, Cell(DASH, reason="no epoch was validated")
    cells = (
        Cell(str(len(run.epochs)), len(run.epochs)),
        Cell(f"{loss:.3f}", loss),
        unscored if best is None else Cell(percent(best), best),
        unscored if best is None else Cell(str(at), at),
        Cell(training_end(run)),
    )
    return Line(run.model, differs, ((run.seed, run.key),), cells)


def _by_epoch(runs: Iterable[Run], value: Callable[[EpochRecord], float | None]) -> Points:
    found: Points = {}
    for run in runs:
        for number, epoch in enumerate(run.epochs, start=1):
            seen = value(epoch)
            if seen is not None:
                found.setdefault(number, []).append(seen)
    return dict(sorted(found.items()))


def _is_open(runs: Iterable[Run]) -> bool:
    return mean_learning([run.learning for run in runs if run.learning is not None]).state == "still learning"


def _series(runs: Sequence[Run], colour: int, values: Points, name: str, decimals: int) -> Series:
    points = tuple((float(number), fmean(seen)) for number, seen in values.items())
    several = any(len(seen) > 1 for seen in values.values())
    band = tuple((float(number), min(seen), max(seen)) for number, seen in values.items()) if several else ()
    last = f"{points[-1][1]:.{decimals}f} at epoch {points[-1][0]:.0f}" if points else "no epoch"
    is_open = _is_open(runs)
    title = f"{name}: {last}{', still learning' if is_open else ''}"
    return Series(runs[0].model, colour, points, title, band=band, open_end=is_open)
