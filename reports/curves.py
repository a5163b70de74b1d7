"""Learning curves of runs as plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reports.plots import Plot, Series, line_plot
from results.views import RunDetail


@dataclass(frozen=True, slots=True)
class CurveLine:
    """One run's summary under the plots; epochs are counted over all stages, from 1."""

    name: str
    key: str
    epochs: int
    loss: float
    best: float | None
    best_epoch: int | None


def run_name(run: RunDetail) -> str:
    """A run as people call it."""
    return f"{run.model}, seed {run.seed}"


def curve_plots(runs: Sequence[RunDetail], colours: Mapping[str, int]) -> list[Plot]:
    """Validation CIDEr-D and training loss by epoch, one line a run; plots without a point are left out."""
    cider, loss = [], []
    for run in runs:
        epochs = list(enumerate(run.epochs, start=1))
        validated = tuple(
            (float(number), 100 * epoch.val_cider) for number, epoch in epochs if epoch.val_cider is not None
        )
        losses = tuple((float(number), epoch.train_loss) for number, epoch in epochs)
        colour = colours[run.model]
        cider.append(Series(run.model, colour, validated, f"{run_name(run)}: {_last(validated, 1)}"))
        loss.append(Series(run.model, colour, losses, f"{run_name(run)}: {_last(losses, 3)}"))
    x_range = (1.0, float(max((len(run.epochs) for run in runs), default=1)))
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


def _last(points: Sequence[tuple[float, float]], decimals: int) -> str:
    return f"{points[-1][1]:.{decimals}f} after {points[-1][0]:.0f} epochs" if points else "no epoch"
