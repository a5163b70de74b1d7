"""The report's plots as SVG files that stand alone, for a page or a paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from markupsafe import Markup

from reports.html.curves import curve_sections
from reports.html.labels import LETTER_WIDTH, shortened
from reports.html.legend import Entry, colours
from reports.html.plots import Plot
from reports.html.rendering import asset, template_environment
from reports.html.trade_offs import trade_off_sections
from results.runs import reading
from results.runs.leaderboard import leaderboard
from results.store.store import Store

_MARGIN = 32
"""Pixels of a legend's mark and margins, beside its letters."""
_LINE = 18


def figures(store: Store) -> dict[str, str]:
    """Quality against cost and learning curves of everything in the store, as SVG by the name of its file.

    Names have the section and the title of a plot in the report: `trade-offs-1-latency.svg`. Colours are the report's
    light ones. Styles use neither variables nor scripts, so that other programs can convert them.
    """
    groups, failures = leaderboard(store), reading.failures(store)
    finished = reading.finished(store)
    runs = reading.runs_by_key(store, [*(run.key for run in finished), *(failure.key for failure in failures)])
    colour = colours(runs.values())
    template = template_environment(()).get_template("figure.svg.j2")
    style = Markup(asset("figure.css"))

    def svg(plot: Plot, of: str, names: Sequence[Entry] = ()) -> str:
        legend = [replace(each, name=_legend_name(each)) for each in names]
        beside = round(_MARGIN + LETTER_WIDTH * max(len(each.name) for each in legend)) if legend else 0
        height = max(plot.frame.height, plot.frame.top + _LINE * len(legend))
        width = plot.frame.width + beside
        return template.render(plot=plot, of=of, legend=legend, line=_LINE, width=width, height=height, style=style)

    drawn: dict[str, str] = {}
    for section in trade_off_sections(groups, reading.datasets(store), runs, colour):
        drawn |= {_file(section.id, plot): svg(plot, section.title, section.legend) for plot in section.plots}
    for curves in curve_sections(groups, runs, colour):  # lines have their names at their ends
        drawn |= {_file(curves.id, plot): svg(plot, curves.title) for plot in curves.plots}
    return drawn


def _file(section: str, plot: Plot) -> str:
    return f"{section}-{plot.title.lower().replace(' ', '-')}.svg"


def _legend_name(each: Entry) -> str:
    return f"{shortened(each.name)}{' (still learning)' if each.open_end else ''}"
