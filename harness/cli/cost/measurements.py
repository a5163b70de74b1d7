"""How `bench cost measure` shows what it measured: a table, notes below it, and a JSON file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.cli.output import deliver
from harness.cli.tables import TableFormat, format_table

if TYPE_CHECKING:
    from harness.measure.isolated import BenchmarkJob, BenchmarkResult
    from results.records import Quantity

_COLUMNS = ("latency_median", "latency_margin", "latency_throughput", "caption_peak_memory_host")
_OF_A_MODEL = {"model", "arguments", "checkpoint", "answered_by"}
_ON_DEVICES = ("caption_peak_memory_device", "caption_peak_memory_reserved", "energy_per_image")


def format_answers(answers: Sequence[BenchmarkResult], form: TableFormat) -> str:
    if form is TableFormat.csv:
        return _as_csv(answers)
    several = len({answer.precision for answer in answers}) > 1
    devices = any(answer.costs[name].value is not None for answer in answers for name in _ON_DEVICES)
    header = ["Model", "Batch", "Beam", *["Type"] * several, "ms", "±", "Quartiles", "Images/s", "MiB"]
    header += ["Device MiB", "Reserved", "J/image"] * devices
    rows = []
    for answer in answers:
        median, margin, speed, memory = (answer.costs[name] for name in _COLUMNS)
        noise = "~" if answer.costs["latency_noisy"].value else ""
        quartiles = "-" if median.low is None or median.high is None else f"{_ms(median.low)}-{_ms(median.high)}"
        row = [answer.model, str(answer.batch), str(answer.width), *[answer.precision] * several]
        row += [noise + _shown(median, 1e3), _shown(margin, 1e3), quartiles, _shown(speed), _shown(memory)]
        rows.append(row + [_shown(answer.costs[name]) for name in _ON_DEVICES] * devices)
    return format_table(header, rows, form)


def _shown(quantity: Quantity, factor: float = 1.0) -> str:
    from reports.tables.numbers import significant

    return "-" if quantity.value is None else significant(quantity.value * factor)


def _ms(seconds: float) -> str:
    from reports.tables.numbers import significant

    return significant(1e3 * seconds)


def _as_csv(answers: Sequence[BenchmarkResult]) -> str:
    """Every cost of every answer, one a line."""
    rows = [
        [answer.model, answer.batch, answer.width, answer.precision, name]
        + [getattr(cost, part) for part in ("value", "unit", "low", "high", "reason")]
        for answer in answers
        for name, cost in answer.costs.items()
    ]
    header = ["model", "batch", "beam", "precision", "cost", "value", "unit", "low", "high", "reason"]
    return format_table(header, [["" if cell is None else str(cell) for cell in row] for row in rows], TableFormat.csv)


def measurement_notes(answers: Sequence[BenchmarkResult], environment: dict[str, Any]) -> list[str]:
    """Where it was measured, what is noise, and why something is missing."""
    notes = []
    if environment:
        device = environment["device"]
        place = device.get("name", environment["cpu"]) or device["type"]
        threads, cores = environment["threads"], environment["pinned_cores"]
        plural, pinned = ("" if threads == 1 else "s"), ""
        if cores:
            pinned = f" on core{plural} {','.join(map(str, cores))}"
        notes.append(
            f"{place}, {threads} thread{plural}{pinned}, torch {environment['packages']['torch']}. Median of "
            "timed batches, from features to captions; ±: how far the median of another run lies, in 9 of 10 tries. "
            "MiB: most memory of the whole process."
        )
        if others := environment["state"].get("other_processes"):
            notes.append(f"Warning: {others} other processes used the device.")
    if any(answer.model.startswith("hf:") for answer in answers):
        notes.append(
            "hf: from the processor's output for copies of a picture of 640 x 480, by transformers' own search."
        )
    if noisy := [answer for answer in answers if answer.state.get("noise")]:
        reasons = dict.fromkeys(reason for answer in noisy for reason in answer.state["noise"])
        shown = "; ".join(list(reasons)[:3])
        notes.append(f"~ noisy, {len(noisy)} of {len(answers)} times: {shown}{'; ...' if len(reasons) > 3 else '.'}")
    missing: dict[str, list[str]] = {}
    for answer in answers:
        for name, cost in answer.costs.items():
            if cost.reason is not None and name not in missing.setdefault(cost.reason, []):
                missing[cost.reason].append(name)
    notes += [f"Not measured: {', '.join(names)}: {reason}." for reason, names in missing.items()]
    return notes


def write_answers(
    out: Path,
    question: BenchmarkJob,
    answers: Sequence[BenchmarkResult],
    failures: dict[str, str],
    environment: dict[str, Any],
) -> None:
    """Write everything that has been measured so far as JSON."""
    import json
    from dataclasses import asdict

    asked = {name: value for name, value in asdict(question).items() if name not in _OF_A_MODEL}
    content = {
        "asked": asked,
        "environment": environment,
        "answers": [asdict(answer) for answer in answers],
        "failures": failures,
    }
    deliver(json.dumps(content, indent=1) + "\n", out)
