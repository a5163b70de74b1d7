"""Sections of plots: quality against cost, and learning curves with one line for each row of the leaderboard."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from reports import numbers
from reports.columns import Cell, Column, cost_cell, is_all_on_other_machine, is_noisy, score_column
from reports.html.plots import Plot, Series, legend, line_plot, trade_off_plot
from reports.html.sections import Section
from reports.numbers import DASH, percent
from reports.tables.boards import in_order
from reports.tables.conditions import without_digests
from reports.tables.contents import Contents
from reports.tables.plot_data import Axis, axes_of, bounded_cost, by_epoch
from reports.tables.table import Line, Table, differences, table_of
from results.records import Quantity
from results.runs.leaderboard import Group, Row
from results.runs.run import Run
from results.signature import format_fields
from results.statistics.learning import mean_learning


def trade_off_sections(contents: Contents, colour: Mapping[str, int]) -> list[Section]:
    """The groups with at least one plot of two points, largest first."""
    sections: list[Section] = []
    for group in contents.groups:
        axes = axes_of(group)
        costs = {
            row.keys: {axis.cost: bounded_cost(row, axis.cost, contents.runs) for axis in axes} for row in group.rows
        }
        plots: list[Plot] = []
        best: dict[tuple[str, ...], list[str]] = {}
        scored = [row for row in group.rows if row.mean("CIDEr-D") is not None]
        for axis in axes:
            measured = [row for row in scored if costs[row.keys][axis.cost].value is not None]
            comparable = [row for row in measured if not is_all_on_other_machine(row, axis.cost)]
            unit, label = axis.scale(costs[row.keys][axis.cost] for row in comparable)
            series = [_series(row, costs[row.keys][axis.cost], axis.cost, unit, label, colour) for row in comparable]
            plot = trade_off_plot(axis.title, label, "CIDEr-D", series)
            if plot is not None:
                plots.append(plot)
                if plot.matched:
                    continue
                for index in sorted(plot.best):
                    best.setdefault(comparable[index].keys, []).append(axis.title.lower())
        if plots:
            names = (drawn_point.series.name for plot in plots for drawn_point in plot.drawn)
            learning = {row.model for row in group.rows if row.still_learning}
            sections.append(
                Section(
                    *(f"trade-offs-{len(sections) + 1}", contents.title(group), group.track, contents.details(group)),
                    legend=legend(names, [row.model for row in group.rows], colour, learning),
                    plots=plots,
                    tables={"": _table(group, axes, costs, best, contents)},
                )
            )
    return sections


def _series(row: Row, cost: Quantity, name: str, unit: float, label: str, colour: Mapping[str, int]) -> Series:
    score = row.scores["CIDEr-D"]
    assert score.mean is not None
    assert cost.value is not None
    bounds = numbers.bounds(score.low, score.high, numbers.percent)
    quality = f"CIDEr-D {numbers.percent(score.mean)}{f' ({bounds})' if bounds else ''}"
    text = f"{row.model}: {quality}, {numbers.significant(cost.value / unit)} {label}"
    if is_noisy(row, name):
        text += " (noisy)"
    if row.still_learning:
        text += ", still learning"
    x_bounds = None if cost.low is None or cost.high is None else (cost.low / unit, cost.high / unit)
    y_bounds = None if score.low is None or score.high is None else (100 * score.low, 100 * score.high)
    if y_bounds is None and score.sd is not None:
        y_bounds = (100 * (score.mean - score.sd), 100 * (score.mean + score.sd))
    spot = (cost.value / unit, 100 * score.mean)
    return Series(row.model, colour[row.model], (spot,), text, x_bounds, y_bounds, open_end=row.still_learning)


def _table(
    group: Group,
    axes: Sequence[Axis],
    costs: Mapping[tuple[str, ...], Mapping[str, Quantity]],
    best: Mapping[tuple[str, ...], Sequence[str]],
    contents: Contents,
) -> Table:
    def column(axis: Axis) -> Column:
        def read(row: Row, _: Group) -> Cell:
            return cost_cell(replace(row, costs={**row.costs, **costs[row.keys]}), axis.cost)

        # Only numbers of parameters have no unit.
        heading = axis.title if axis.cost != "parameters" else "Size, parameters"
        _, meaning = axis.scale(of_row[axis.cost] for of_row in costs.values())
        return Column(heading, read, meaning, axis.title, descending=False)

    def front(row: Row, _: Group) -> Cell:
        return Cell(", ".join(best.get(row.keys, ())))

    on_front = Column("Best trade-off in", front, "the plots on whose front the row lies", "Best", sortable=False)
    columns = (score_column("CIDEr-D"), on_front, *map(column, axes))
    return table_of(replace(group, references=()), columns, contents.facets)


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
    """Learning curves by conditions, the largest groups first; runs that did not finish have separate lines.

    Conditions get separate plots, because losses of other objectives or data have other scales, and lines of one model
    would look the same.
    """
    runs = contents.runs
    rows = {row.keys: differences(row.differs) for group in contents.groups for row in group.rows}
    ranked = {key for keys in rows for key in keys}
    rows |= {(key,): "" for key in runs if key not in ranked}
    ranking = [row.model for group in contents.groups for row in group.rows]
    sections: dict[tuple[str, str, frozenset[tuple[str, str]]], list[list[Run]]] = {}
    differing: dict[str, str] = {}
    for keys, differs in rows.items():
        members = [runs[key] for key in keys if runs[key].epochs]
        if members:
            first = members[0]
            sections.setdefault((first.dataset, first.track, frozenset(first.signature.items())), []).append(members)
            differing |= {run.key: differs for run in members}
    drawn_sections = []
    for index, ((dataset, track, signature), row_runs) in enumerate(sections.items(), start=1):
        common = frozenset.intersection(*(other_signature for data, _, other_signature in sections if data == dataset))
        separating = in_order(dict(sorted(signature - common)))
        separating.pop("track", None)
        details = contents.words_of_runs(dataset, dict(signature)) or without_digests(format_fields(separating))
        learning = {members[0].model for members in row_runs if _is_open(members)}
        lines = tuple(_line(run, differing[run.key]) for members in row_runs for run in members)
        drawn_sections.append(
            Section(
                *(f"curves-{index}", dataset, track, details),
                legend=legend((members[0].model for members in row_runs), ranking, colour, learning),
                plots=curve_plots(row_runs, colour),
                tables={"": Table(_COLUMNS, lines)},
            )
        )
    return drawn_sections


def curve_plots(rows: Sequence[Sequence[Run]], colour: Mapping[str, int]) -> list[Plot]:
    """Validation CIDEr-D and training loss by epoch: the mean over a row's seeds, and a band from least to most."""
    cider = []
    loss = []
    for members in rows:
        validated = by_epoch(members, lambda epoch: None if epoch.val_cider is None else 100 * epoch.val_cider)
        losses = by_epoch(members, lambda epoch: epoch.train_loss)
        seeds = f"{len(members)} seeds" if len(members) > 1 else f"seed {members[0].seed}"
        name = f"{members[0].model}, {seeds}"
        hue = colour[members[0].model]
        cider.append(_curve(members, hue, validated, name, 1))
        loss.append(_curve(members, hue, losses, name, 3))
    x_range = (1.0, float(max((len(run.epochs) for members in rows for run in members), default=1)))
    plots = (
        line_plot("Validation", "epoch", "CIDEr-D", cider, x_range=x_range),
        line_plot("Training", "epoch", "loss", loss, x_range=x_range),
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
    scored = [(epoch.val_cider, index) for index, epoch in enumerate(run.epochs, 1) if epoch.val_cider is not None]
    best, best_epoch = max(scored, key=lambda pair: pair[0]) if scored else (None, 0)
    loss = run.epochs[-1].train_loss
    unscored = Cell(DASH, reason="no epoch was validated")
    scores = (unscored, unscored) if best is None else (Cell(percent(best), best), Cell(str(best_epoch), best_epoch))
    trained = Cell(str(len(run.epochs)), len(run.epochs)), Cell(f"{loss:.3f}", loss)
    return Line(run.model, differs, ((run.seed, run.key),), (*trained, *scores, Cell(training_end(run))))


def _is_open(runs: Iterable[Run]) -> bool:
    return mean_learning([run.learning for run in runs if run.learning is not None]).state == "still learning"


def _curve(runs: Sequence[Run], colour: int, values: Mapping[int, Sequence[float]], name: str, decimals: int) -> Series:
    points = tuple((float(epoch), fmean(of_epoch)) for epoch, of_epoch in values.items())
    several = any(len(of_epoch) > 1 for of_epoch in values.values())
    band = tuple((float(epoch), min(of_epoch), max(of_epoch)) for epoch, of_epoch in values.items()) if several else ()
    last = f"{points[-1][1]:.{decimals}f} at epoch {points[-1][0]:.0f}" if points else "no epoch"
    last += f", of {n_last} of them" if values and (n_last := len(list(values.values())[-1])) < len(runs) else ""
    is_open = _is_open(runs)
    title = f"{name}: {last}{', still learning' if is_open else ''}"
    return Series(runs[0].model, colour, points, title, band=band, open_end=is_open)
