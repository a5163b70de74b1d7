"""`bench cost runs`: what the training of stored runs took, beside what was predicted and what papers print."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.inputs import open_results
from harness.cli.options import DatabaseOption, TableFormatOption, WorkspaceOption, finite
from harness.cli.tables import TableFormat, format_table, print_notes
from harness.utils.workspace import DEFAULT

if TYPE_CHECKING:
    from results.published import PublishedScore
    from results.runs.run import Run

_EXAMPLES = """
**Examples**

- `bench cost runs` : time, what was predicted, images a second by stage, waiting for data, an estimate for an A100

- `bench cost runs --cider 100 --format csv` : and how long until validation reached a CIDEr-D of 100
"""
_ESTIMATE = "train_a100_hours_estimate"
_HOURS = {"train_time_hours": 1.0, "train_time_days": 24.0}


def register(group: typer.Typer) -> None:
    """Add the command to `bench cost`."""
    group.command("runs", epilog=_EXAMPLES)(runs)


def runs(
    workspace: WorkspaceOption = DEFAULT,
    db: DatabaseOption = None,
    cider: Annotated[
        float | None,
        typer.Option(min=0, max=1000, callback=finite, help="Time until validation reached this CIDEr-D, times 100."),
    ] = None,
    output: TableFormatOption = TableFormat.table,
) -> None:
    """Show the training of every finished run: time, prediction, speed, and an ESTIMATE of an A100's hours.

    The estimate takes the work that was counted. It lies between an A100 that works at the rate of the device that was
    used, and one that works at the same share of its peak rate.
    """
    from results.runs.reading import finished

    with open_results(workspace, db) as store:
        details = [run for run in finished(store) if run.role == "model"]
    rows = [_row(detail, None if cider is None else cider / 100) for detail in details]
    reached = [] if cider is None else [f"To {cider:g}"]
    header = ["Model", "Seed", "Time", "Predicted", "Images/s", *reached, "Wait", "A100, estimate"]
    typer.echo(format_table(header, rows, output), nl=False)
    print_notes(_notes(details), output)
    if output is not TableFormat.csv:
        models = dict.fromkeys(detail.model.partition("/")[0] for detail in details)
        if printed := [_printed(score) for model in models for score in printed_times(model)]:
            header = ["Papers print", "Hours", "Stages", "Strategy", "Device", "Where"]
            typer.echo("\n" + format_table(header, printed, output), nl=False)


def _row(detail: Run, cider: float | None) -> list[str]:
    from reports.tables.numbers import duration, significant

    def shown(name: str) -> str:
        cost = detail.costs.get(name)
        if cost is None or cost.value is None:
            return "-"
        return duration(cost.value) if cost.unit == "s" else f"{significant(cost.value)} {cost.unit}"

    speeds = detail.stage_speeds()
    named = [
        f"{name} {significant(speed)}" if len(speeds) > 1 else significant(speed) for name, speed in speeds.items()
    ]
    row = [detail.model, str(detail.seed), shown("train_seconds"), shown("predicted_train_seconds")]
    row.append(", ".join(named) or "-")
    if cider is not None:
        seconds = detail.seconds_to(cider)
        row.append("never" if seconds is None else duration(seconds))
    return [*row, shown("train_data_wait"), _estimate(detail)]


def _estimate(detail: Run) -> str:
    """Hours of an A100, between their bounds where the run has some."""
    from reports.tables.columns import quantity_cell

    cell = quantity_cell(detail.costs, _ESTIMATE)
    return "-" if cell.value is None else cell.text


def _notes(details: Sequence[Run]) -> list[str]:
    """What estimates assume, and why some are missing."""
    from reports.tables.numbers import cost_kind

    missing: dict[str, list[str]] = {}
    for detail in details:
        cost = detail.costs.get(_ESTIMATE)
        reason = "the run is older than this estimate" if cost is None else cost.reason
        if reason is not None:
            missing.setdefault(reason, []).append(detail.model)
    notes = [f"No estimate for {', '.join(dict.fromkeys(models))}: {why}." for why, models in missing.items()]
    told = sum(map(len, missing.values())) < len(details)
    return ([f"A100: {cost_kind(_ESTIMATE, 'h').meaning}."] if told else []) + notes


def printed_times(model: str) -> list[PublishedScore]:
    """Training times that papers print for a model, by any of their strategies, in the papers' order."""
    from results.published import scores

    family = model.partition("/")[0]
    return [score for score in scores() if score.metric in _HOURS and score.model == family]


def _printed(score: PublishedScore) -> list[str]:
    stage = {None: "all", "XE": "cross-entropy", "RL": "rewards"}[score.objective]
    strategy = next((part for part in score.variant.split("; ") if part.endswith(" training strategy")), "")
    device = next((part for part in score.note.split("; ") if "Nvidia" in part), "")
    hours = f"{score.value * _HOURS[score.metric]:g}"
    return [score.model, hours, stage, strategy.removesuffix(" training strategy"), device, score.source]
