"""The figures of one table: scores with intervals, trade-offs, learning curves, and which pairs differ."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean
from typing import Literal

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator

from reports.columns import is_all_on_other_machine, row_rank_cell
from reports.figures.labels import Label, place_labels
from reports.figures.style import (
    BETTER,
    COLUMN_WIDTH,
    FAINT,
    GREY,
    INK,
    SAME,
    SETTINGS,
    SMALL,
    STYLED,
    WORSE,
    Mark,
    marks,
)
from reports.model_names import display_name
from reports.tables.contents import Contents
from reports.tables.plot_data import SAME_COST, Axis, axes_of, bounded_cost, by_epoch, trade_off_front
from results.metrics import RANKING_METRIC
from results.records import Quantity
from results.runs.leaderboard import Group, Row

FigureFormat = Literal["pdf", "svg", "png"]
_LINE = 0.135  # inches of a row of text
_STEPS = (1, 2, 5, 10)
_FEW = 12  # models that all have their names in a trade-off


@dataclass
class Figures:
    """Drawn figures by the name of their file, and sentences on what they leave out or why one is missing."""

    drawn: dict[str, Figure] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)


def draw_figures(contents: Contents, group: Group, renamed: Mapping[str, str], width: float = COLUMN_WIDTH) -> Figures:
    """The figures of a group, `width` inches wide. Its best models have colours of their own in all of them."""
    figures = Figures()
    names = _names([*group.rows, *group.references], renamed)
    looks = marks(row.model for row in group.rows)
    if baselines := [names[row.keys] for row in group.rows if row not in group.models]:
        figures.remarks.append(f"{', '.join(baselines)}: a baseline, in the leaderboard's figure alone")
    with matplotlib.rc_context(SETTINGS):
        _draw_leaderboard(figures, group, names, width)
        for axis in axes_of(group):
            _draw_trade_off(figures, contents, group, axis, names, looks, width)
        _draw_curves(figures, contents, group, names, looks, width)
        _draw_pairs(figures, group, names, width)
        for figure in figures.drawn.values():
            if figure.get_layout_engine() is not None:
                _lay_out(figure)
    return figures


def as_bytes(figure: Figure, format: FigureFormat) -> bytes:
    """The file of a figure: the same figure is the same file, so that it has no date."""
    content = io.BytesIO()
    undated = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {}}[format]
    with matplotlib.rc_context(SETTINGS):
        figure.savefig(content, format=format, metadata=undated)
    return content.getvalue()


def _names(rows: Sequence[Row], renamed: Mapping[str, str]) -> dict[tuple[str, ...], str]:
    """The display name of each row by its runs, with the fields that differ where another has the same name."""
    names = {row.keys: display_name(row.model, renamed) for row in rows}
    several = [name for name in names.values() if list(names.values()).count(name) > 1]
    for row in rows:
        if names[row.keys] in several and row.differs:
            names[row.keys] += f" ({', '.join(f'{field}: {value}' for field, value in row.differs.items())})"
    return names


def _figure(width: float, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.02, h_pad=0.02))
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_axisbelow(True)
    return figure, axes


def _lay_out(figure: Figure) -> None:
    """Settle where everything is, so that names can be placed and the same figure is drawn again."""
    for _ in range(2):  # the ticks of the second time need other room than those of the first
        figure.draw_without_rendering()
    figure.set_layout_engine("none")


def _draw_leaderboard(figures: Figures, group: Group, names: Mapping[tuple[str, ...], str], width: float) -> None:
    """A line a row: mean and 95 % interval, hollow where it has no rank, and its ranks at the right."""
    metric = group.metric
    rows = [row for row in (*group.rows, *group.references) if row.mean(metric) is not None]
    if not rows:
        figures.remarks.append(f"leaderboard: no row has {metric}")
        return
    figure, axes = _figure(width, 0.55 + _LINE * len(rows))
    for line, row in enumerate(rows):
        score = row.scores[metric]
        assert score.mean is not None
        is_ranked = row in group.rows and group.is_ranked(row)
        colour = BETTER if is_ranked else GREY
        if score.low is not None and score.high is not None:
            axes.plot([100 * score.low, 100 * score.high], [line, line], color=colour, linewidth=1.1)
        shape = "o" if row in group.rows else "D"
        filling = colour if is_ranked else "white"
        axes.plot(100 * score.mean, line, shape, color=colour, markerfacecolor=filling, markersize=3.6)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_yticks(range(len(rows)), [names[row.keys] for row in rows])
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="#e6e6e6", linewidth=0.5)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(f"{metric} (95% interval)")
    if group.references and group.rows:
        axes.axhline(len([row for row in rows if row in group.rows]) - 0.5, color=FAINT, linewidth=0.5)
    if any(group.is_ranked(row) for row in group.rows):
        ranks = axes.secondary_yaxis("right")
        ranks.set_yticks(range(len(rows)), [_rank_text(row, group) for row in rows])
        ranks.tick_params(length=0)
        ranks.spines["right"].set_visible(False)
        axes.set_title("rank", loc="right", fontsize=SMALL, pad=2)
    figures.drawn["leaderboard"] = figure


def _rank_text(row: Row, group: Group) -> str:
    return row_rank_cell(row, group).text if group.is_ranked(row) else ""


def _draw_trade_off(
    figures: Figures,
    contents: Contents,
    group: Group,
    axis: Axis,
    names: Mapping[tuple[str, ...], str],
    looks: Mapping[str, Mark],
    width: float,
) -> None:
    """Quality against a cost, with the line of the models that no other beats in both."""
    name = f"trade-off-{axis.title.lower().replace(' ', '-')}"
    costs = {row.keys: bounded_cost(row, axis.cost, contents.runs) for row in group.rows}
    rows = [
        row
        for row in group.models
        if row.mean(group.metric) is not None
        and costs[row.keys].value is not None
        and not is_all_on_other_machine(row, axis.cost)
    ]
    if len(rows) < 2:
        figures.remarks.append(f"{name}: fewer than two models have this cost on one machine")
        return
    measured = [costs[row.keys].value or 0.0 for row in rows]
    if max(measured) <= SAME_COST * min(measured):
        figures.remarks.append(f"{name}: the models differ by less than {100 * (SAME_COST - 1):.0f} % in it")
        return
    unit, label = axis.scale(costs[row.keys] for row in rows)
    spots = [((costs[row.keys].value or 0.0) / unit, 100 * (row.mean(group.metric) or 0.0)) for row in rows]
    figure, axes = _figure(width, 0.78 * width)
    for row, (x, y) in zip(rows, spots, strict=True):
        cost = costs[row.keys]
        score = row.scores[group.metric]
        look = looks[row.model]
        _bar(axes, cost, unit, y)
        if score.low is not None and score.high is not None:
            axes.plot([x, x], [100 * score.low, 100 * score.high], color=FAINT, linewidth=0.6, zorder=1)
        filling = look.colour if group.is_ranked(row) else "white"
        edge = look.colour if look != Mark() else GREY
        axes.plot(x, y, look.shape, color=edge, markerfacecolor=filling if look != Mark() else FAINT, markersize=4)
    values = [x for x, _ in spots]
    if min(values) > 0 and max(values) / min(values) > 10:
        axes.set_xscale("log")
    else:
        axes.xaxis.set_major_locator(MaxNLocator(6, steps=_STEPS))
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=_STEPS))
    axes.margins(0.1)
    axes.set_xlabel(label)
    axes.set_ylabel(group.metric)
    front = trade_off_front(spots)
    corners = [spots[index] for index in front[:1]]
    for before, after in pairwise(front):
        corners += [(spots[after][0], spots[before][1]), spots[after]]
    if len(front) > 1:
        axes.plot(*zip(*corners, strict=True), color=INK, linewidth=0.7, linestyle=(0, (3, 2)), zorder=1.5)
    axes.set_xlim(axes.get_xlim())  # the lines to names must not move it
    axes.set_ylim(axes.get_ylim())
    _lay_out(figure)
    order = [*front, *(index for index in range(len(rows)) if index not in front)]
    has_few_rows = len(rows) <= _FEW
    labels = []
    for index in order:
        look = looks[rows[index].model]
        colour = INK if look == Mark() else look.colour
        is_far = has_few_rows or index in front or look != Mark()
        labels.append(Label(names[rows[index].keys], spots[index], colour, is_far))
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined] # which Agg's canvas has
    without = place_labels(axes, renderer, labels, lines=[corners], size=SMALL)
    if without:
        figures.remarks.append(f"{name}: no room for the names of {', '.join(without)}")
    figures.drawn[name] = figure


def _bar(axes: Axes, cost: Quantity, unit: float, y: float) -> None:
    if cost.low is not None and cost.high is not None:
        axes.plot([cost.low / unit, cost.high / unit], [y, y], color=FAINT, linewidth=0.6, zorder=1)


def _draw_curves(
    figures: Figures,
    contents: Contents,
    group: Group,
    names: Mapping[tuple[str, ...], str],
    looks: Mapping[str, Mark],
    width: float,
) -> None:
    """Validation by epoch: the mean over a row's seeds, and a band from the least to the most for the first rows."""
    curves = []
    for row in group.models:
        runs = [contents.runs[key] for key in row.keys]
        values = by_epoch(runs, lambda epoch: None if epoch.val_cider is None else 100 * epoch.val_cider)
        if values:
            curves.append((row, values))
    if not curves:
        figures.remarks.append("learning-curves: no run has validations of its epochs")
        return
    figure, axes = _figure(width, 0.85 * width)
    grey = 0
    for position, (row, values) in enumerate(reversed(curves)):
        epochs = list(values)
        means = [fmean(scores) for scores in values.values()]
        look = looks[row.model]
        if look == Mark():
            grey += 1
            axes.plot(epochs, means, color=FAINT, linewidth=0.6, label="others" if grey == 1 else None)
            continue
        axes.fill_between(
            epochs,
            [min(scores) for scores in values.values()],
            [max(scores) for scores in values.values()],
            color=look.colour,
            alpha=0.12,
            linewidth=0,
        )
        every = max(1, len(epochs) // 6)
        axes.plot(
            *(epochs, means),
            color=look.colour,
            marker=look.shape,
            markersize=3,
            markevery=(position % every, every),
            label=names[row.keys],
        )
    axes.set_xlabel("epoch")
    axes.set_ylabel(f"validation {RANKING_METRIC}")
    handles, labels = axes.get_legend_handles_labels()
    order = sorted(range(len(labels)), key=lambda index: (labels[index] == "others", -index))
    figure.legend(
        [handles[index] for index in order],
        [labels[index] for index in order],
        loc="outside lower center",
        ncols=2 if width < 5 else 4,
        frameon=False,
        handlelength=1.8,
        columnspacing=1.0,
        labelspacing=0.25,
    )
    if grey:
        figures.remarks.append(f"learning-curves: {grey} models after the first {STYLED} are grey; choose by --models")
    figures.drawn["learning-curves"] = figure


def _draw_pairs(figures: Figures, group: Group, names: Mapping[tuple[str, ...], str], width: float) -> None:
    """A square of all compared rows: whether the row is significantly better or worse than the column."""
    compared = group.comparisons
    if compared is None or len(compared.rows) < 2:
        figures.remarks.append("pairs: fewer than two models can be compared")
        return
    rows = sorted(compared.rows)
    colours = {"better": BETTER, "worse": WORSE, "same": SAME, "unknown": "white"}
    signs = {"better": "+", "worse": "−", "same": "="}
    figure, axes = _figure(width, width + 0.25)
    letters = min(SMALL, 72 * 0.6 * width / len(rows) * 0.9)
    for line, first in enumerate(rows):
        for column, column_row in enumerate(rows):
            comparison = compared.between(first, column_row)
            verdict = comparison[1] if comparison else ""
            colour = colours.get(verdict, "#f2f2f2")
            axes.add_patch(
                Rectangle((column - 0.5, line - 0.5), 1, 1, facecolor=colour, edgecolor=FAINT, linewidth=0.3)
            )
            if sign := signs.get(verdict):
                ink = "white" if verdict == "better" else INK
                axes.text(column, line, sign, ha="center", va="center_baseline", fontsize=letters, color=ink)
    labels = [names[group.rows[row].keys] for row in rows]
    axes.set_xlim(-0.5, len(rows) - 0.5)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_aspect("equal")
    size = min(SMALL, letters + 1)
    axes.set_xticks(range(len(rows)), labels, rotation=90, fontsize=size)
    axes.set_yticks(range(len(rows)), labels, fontsize=size)
    axes.tick_params(length=0, pad=2)
    for spine in axes.spines.values():
        spine.set_visible(False)
    present = {
        comparison_of_pair[1]
        for pair in compared.pairs
        if (comparison_of_pair := compared.between(pair.first, pair.second))
    }
    words = {"better": "row is better", "worse": "row is worse", "same": "the same", "unknown": "not significant"}
    present |= {"worse"} if "better" in present else set()
    handles = [
        Patch(
            facecolor=colours[verdict], edgecolor=GREY, linewidth=0.4, label=f"{signs.get(verdict, '')} {text}".strip()
        )
        for verdict, text in words.items()
        if verdict in present
    ]
    figure.legend(
        handles=handles,
        loc="outside upper center",
        ncols=len(handles),
        frameon=False,
        handlelength=0.9,
        columnspacing=1.0,
    )
    figures.drawn["pairs"] = figure
