"""Quality against cost: which models are worth what they take."""

from __future__ import annotations

from collections.abc import Mapping

from reports import numbers
from reports.plots import Plot, Series, trade_off_plot
from results.views import Group


def trade_offs(group: Group, colour: Mapping[str, int]) -> tuple[Plot, ...]:
    """CIDEr-D against the GMAC of a caption and against parameters; plots of fewer than two models are left out."""
    axes = (
        ("gmac_beam", 1.0, "Quality against computation", "GMAC per caption"),
        ("parameters", 1e6, "Quality against size", "parameters, millions"),
    )
    plots = []
    for name, unit, title, label in axes:
        series = []
        for row in group.rows:
            score, cost = row.scores.get("CIDEr-D"), row.costs.get(name)
            if score is None or score.mean is None or cost is None or cost.value is None:
                continue
            amount = cost.value / unit
            text = f"{row.model}: CIDEr-D {numbers.percent(score.mean)}, {numbers.significant(amount)} {label}"
            series.append(Series(row.model, colour[row.model], ((amount, 100 * score.mean),), text))
        plots.append(trade_off_plot(title, label, "CIDEr-D", series))
    return tuple(plot for plot in plots if plot is not None)
