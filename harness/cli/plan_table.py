"""The table of `bench plan`: one line a model, what is made first, and where its time is known from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from harness.cli.plan_estimate import Estimate, Timing

_SOURCES = {
    "stored": "as stored runs of these conditions took, all of their work included",
    "stated": "throughput stated as {throughput:g} TFLOP/s",
    "measured": "throughput measured on {device} here for a moment",
}


@dataclass(frozen=True, slots=True)
class PlannedCounts:
    """How many runs of each row there are.

    Attributes:
        runs: by name, trained models first, then rows without training.
        finished: those that are re-used, by name; None where they are not known.
    """

    runs: Mapping[str, int]
    finished: Mapping[str, int] | None

    def left(self, name: str) -> int:
        """Runs that would be executed."""
        return self.runs[name] - (self.finished or {}).get(name, 0)


def show_estimates(estimates: Sequence[Estimate], counts: PlannedCounts, console: Console) -> None:
    """Print the stages, which all models share, and a line a row of the benchmark."""
    from harness.utils.progress import describe_seconds
    from reports.tables.numbers import count
    from reports.text.grid import Grid

    for stage in estimates[0].stages if estimates else ():
        console.print(f"stage {stage.stage}: {stage.epochs:,} epochs, {stage.steps:,} steps, {stage.images:,} images")
    header, rows = ("New", "Re-used", "Parameters", "Work", "Time"), []
    by_model = {each.model: each for each in estimates}
    for name in counts.runs:
        reused = "?" if counts.finished is None else f"{counts.finished.get(name, 0)}"
        cells = ["-", "-", "-"]
        if (each := by_model.get(name)) is not None:
            macs = sum(stage.training + stage.decoding for stage in each.stages) + each.captioning.decoding
            told = "-" if each.seconds is None else describe_seconds(each.seconds)
            cells = [count(each.costs.parameters), f"{count(macs)}MAC", told]
        rows.append((name, f"{counts.left(name)}", reused, *cells))
    numbers = sum(2 + max(map(len, column)) for column in list(zip(("", *header), *rows, strict=True))[1:])
    # A name alone may be cut, so that a model has one line and every number is whole.
    shown = [(shortened_to(name, console.width - numbers), *cells) for name, *cells in rows]
    console.print(Grid(("Model", *header), shown).rich())
    console.print("Work and time are of one run: training, validation and captioning.")


def show_first(first: Sequence[str], unknown: str, console: Console) -> None:
    """Print what is made before the first run, and why finished runs are not known, if they are not."""
    for what in first:
        console.print(f"first: {what}", soft_wrap=True, markup=False)
    if unknown:
        console.print(f"re-used: not known, {unknown}", soft_wrap=True, markup=False)


def show_time(
    estimates: Sequence[Estimate], counts: PlannedCounts, devices: int, timing: Timing, console: Console
) -> None:
    """Print the time of all runs that are left, one after the other, what it is told from, and why it cannot be told.

    Each line is one sentence, so that none is broken but by the terminal.
    """
    from harness.utils.progress import describe_seconds

    left = [each for each in estimates if counts.left(each.model)]
    if estimates and not left:
        console.print("time: none to train")
    known = [each for each in left if each.seconds is not None]
    if known:
        seconds = sum(counts.left(each.model) * (each.seconds or 0.0) for each in known)
        hours = f"{seconds * devices / 3600:,.2f} device-hours"
        sources = Counter(each.source for each in known)
        said = [
            _SOURCES[source].format(throughput=timing.throughput, device=timing.device.type)
            + (f" ({number} models)" if len(sources) > 1 else "")
            for source, number in sources.items()
        ]
        console.print(f"an ESTIMATE of {hours} ({describe_seconds(seconds)} on {devices}), {'; '.join(said)};")
        without = "; extraction of features, scoring and waiting for data are not in it"
        console.print("one model at a time" + (without if set(sources) - {"stored"} else ""))
    reasons: dict[str, list[str]] = {}
    for each in left:
        if each.seconds is None:
            reasons.setdefault(each.why, []).append(each.model)
    for why, models in reasons.items():
        of = f" of {', '.join(models)}" if known or len(reasons) > 1 else ""
        console.print(f"time{of}: not estimated, {why}", soft_wrap=True)


def shortened_to(name: str, width: int) -> str:
    """A name in so many columns: its middle is left out, since variants differ at their ends."""
    if len(name) <= width:
        return name
    kept = max(width - 1, 2)
    return f"{name[: kept - kept // 2]}…{name[len(name) - kept // 2 :]}"
