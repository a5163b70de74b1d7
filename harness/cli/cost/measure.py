"""`bench cost`: what captioning and training take of time, memory and energy."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli.cost.runs import EPILOG as RUNS_EPILOG
from harness.cli.cost.runs import runs
from harness.cli.tables import Format, format_table
from harness.config.cores import usable_cores
from harness.utils.errors import BenchError

if TYPE_CHECKING:
    from harness.measure.isolated import Answer, Question
    from results.records import Quantity

_EPILOG = """
**Examples**

- `bench cost measure --models updown,m2` : batches of 1, 16 and 64 images, greedy and by a beam of 5

- `bench cost measure --batch 1 --beam 1 --threads 1 --format csv`

- `bench cost measure --preset paper --device cuda --precision fp32,bf16 --out costs.json`
"""
_COLUMNS = ("latency_median", "latency_margin", "latency_throughput", "caption_peak_memory_host")
_ON_DEVICES = ("caption_peak_memory_device", "caption_peak_memory_reserved", "energy_per_image")


def register(app: typer.Typer) -> None:
    """Add `bench cost` and its subcommands."""
    group = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown")
    group.callback()(_group)
    group.command("measure", epilog=_EPILOG)(measure)
    group.command("runs", epilog=RUNS_EPILOG)(runs)
    app.add_typer(group, name="cost", help="Time, memory and energy of captioning, and of training.")


def _group() -> None:
    """What models cost: captioning measured here, training as the stored runs have it. Counts: `bench flops`."""


def measure(
    models: Annotated[str, typer.Option(help="Names or globs, separated by commas, or 'all'.")] = "all",
    preset: Annotated[str | None, typer.Option(help="Sizes of a preset. Without it, each paper's.")] = None,
    change: Annotated[list[str] | None, typer.Option("--set", help="KEY.PATH=VALUE: change the preset.")] = None,
    batch: Annotated[str, typer.Option(help="Images at once, separated by commas.")] = "1,16,64",
    beam: Annotated[str, typer.Option(help="Widths of the search, separated by commas; 1 is greedy.")] = "1,5",
    caption_length: Annotated[int, typer.Option(min=1, help="Tokens of every caption.")] = 20,
    regions: Annotated[int, typer.Option(min=1, help="Grid cells or regions an image.")] = 144,
    visual_dim: Annotated[int, typer.Option(min=1, help="Channels of the features.")] = 1536,
    vocab_size: Annotated[int, typer.Option(min=5, help="Words, special tokens included.")] = 10_000,
    repeats: Annotated[int, typer.Option(min=2, help="Timed runs of each kind.")] = 30,
    energy_seconds: Annotated[float, typer.Option(min=0, help="Window of energy, on devices that count it.")] = 5.0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    precision: Annotated[str, typer.Option(help="fp32, bf16 or both, separated by a comma.")] = "fp32",
    threads: Annotated[int | None, typer.Option(min=1, help="Processor threads, pinned to cores.")] = None,
    output: Annotated[Format, typer.Option("--format", help="How to write the table.")] = Format.table,
    out: Annotated[Path | None, typer.Option("--out", help="A JSON file for everything that was measured.")] = None,
    plugin: Annotated[list[str] | None, typer.Option(help="Python module or file that registers models.")] = None,
) -> None:
    """Measure latency, throughput, memory and energy of captioning, each model in a process of its own.

    From features to finished captions, with random weights and captions of full length. A time has noise (~) where
    its spread is wide, where it drifts, or where other processes keep the machine busy.
    """
    from harness.cli.chosen import chosen_models, chosen_preset
    from harness.measure.captioning_costs import Effort
    from harness.measure.isolated import Question, run_isolated
    from harness.runner.benchmark import choose_device
    from harness.utils.plugins import load_plugins

    load_plugins(plugin)
    settings = chosen_preset(preset, change)
    precisions = tuple(filter(None, map(str.strip, precision.split(","))))
    if not precisions or set(precisions) - {"fp32", "bf16"}:
        raise BenchError(f"--precision {precision!r} is unknown", "choose fp32, bf16 or fp32,bf16")
    where, batches, widths = str(choose_device(device)), _numbers(batch, "--batch"), _numbers(beam, "--beam")
    answers: list[Answer] = []
    environment: dict[str, Any] = {}
    failures: dict[str, str] = {}
    for name in chosen_models(models):
        question = Question(
            model=name,
            arguments=settings.model_arguments(name) if settings else {},
            vocab_size=vocab_size,
            visual_dim=visual_dim,
            regions=regions,
            max_len=caption_length,
            batches=batches,
            widths=widths,
            device=where,
            precisions=precisions,
            threads=threads or usable_cores(),
            effort=Effort(repeats, energy_seconds),
            plugins=tuple(plugin or ()),
        )
        try:
            found, environment = run_isolated(question)
            answers += found
        except BenchError as error:
            failures[name] = str(error)
        if out is not None:
            _write(out, question, answers, failures, environment)
    typer.echo(_table(answers, output), nl=False)
    if output is not Format.csv:
        _print_notes(answers, environment, output)
    for name, reason in failures.items():
        typer.echo(f"failed: {name}: {reason}", err=True)
    if failures:
        raise typer.Exit(1)


def _numbers(text: str, option: str) -> tuple[int, ...]:
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or min(found) < 1:
        raise BenchError(f"{option} {text!r} is no list of whole numbers above 0", f"for example {option} 1,16")
    return found


def _table(answers: Sequence[Answer], output: Format) -> str:
    if output is Format.csv:
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
    return format_table(header, rows, output)


def _shown(quantity: Quantity, factor: float = 1.0) -> str:
    from reports.content.numbers import significant

    return "-" if quantity.value is None else significant(quantity.value * factor)


def _ms(seconds: float) -> str:
    from reports.content.numbers import significant

    return significant(1e3 * seconds)


def _as_csv(answers: Sequence[Answer]) -> str:
    """Every cost of every answer, one a line."""
    rows = [
        [answer.model, answer.batch, answer.width, answer.precision, name]
        + [getattr(cost, part) for part in ("value", "unit", "low", "high", "reason")]
        for answer in answers
        for name, cost in answer.costs.items()
    ]
    header = ["model", "batch", "beam", "precision", "cost", "value", "unit", "low", "high", "reason"]
    return format_table(header, [["" if cell is None else str(cell) for cell in row] for row in rows], Format.csv)


def _print_notes(answers: Sequence[Answer], environment: dict[str, Any], output: Format) -> None:
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
    start = "% " if output is Format.latex else ""
    for note in notes:
        typer.echo(textwrap.fill(note, 79, initial_indent=start, subsequent_indent=start))


def _write(
    out: Path,
    question: Question,
    answers: Sequence[Answer],
    failures: dict[str, str],
    environment: dict[str, Any],
) -> None:
    """After every model, so that a long command leaves what it has."""
    import json
    from dataclasses import asdict

    from harness.utils.atomic import write_text

    asked = {name: value for name, value in asdict(question).items() if name not in {"model", "arguments"}}
    content = {
        "asked": asked,
        "environment": environment,
        "answers": [asdict(answer) for answer in answers],
        "failures": failures,
    }
    write_text(out, json.dumps(content, indent=1) + "\n")
