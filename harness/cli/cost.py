"""`bench cost`: what captioning takes of time, memory and energy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli import options
from harness.cli.inputs import doing, optional_preset, positive_integers, progress_aside
from harness.cli.output import ForceOption, TableFormat, check_out, deliver, echo, format_table, print_notes
from harness.config.execution import usable_cores
from harness.config.limits import MAX_BEAM, MAX_CHANNELS, MAX_ENERGY_S, MAX_PROCESSES, MAX_REGIONS, MAX_TOKENS
from harness.utils.errors import BenchError

if TYPE_CHECKING:
    from harness.measure.isolated import BenchmarkResult

MAX_BATCH = 65_536

EXAMPLES = {
    "measure": r"""
# batches of 1, 16 and 64 images, greedy and by a beam of 5
bench cost measure --models updown,m2
# a checkpoint of the hub, with its own weights
bench cost measure --models hf:FOLDER,git --batch 1,4
bench cost measure --batch 1 --beam 1 --threads 1 --format csv
bench cost measure --preset matched-width --device cuda \
    --precision fp32,bf16 --out costs.json
""",
}
_COLUMNS = ("latency_median", "latency_margin", "latency_throughput", "caption_peak_memory_host")
_OF_A_MODEL = {"model", "arguments", "checkpoint", "answered_by"}
_ON_DEVICES = ("caption_peak_memory_device", "caption_peak_memory_reserved", "energy_per_image")


def measure(
    models: options.RowsOption = "all",
    preset: Annotated[
        str | None,
        typer.Option(help="Sizes of a preset. Without it, each paper's.", autocompletion=options.complete_preset),
    ] = None,
    change: options.ChangeOption = None,
    batch: Annotated[str, typer.Option(help="Batch sizes, separated by commas.")] = "1,16,64",
    beam: Annotated[str, typer.Option(help="Beam sizes, separated by commas; 1 is greedy.")] = "1,5",
    caption_length: Annotated[int, typer.Option(min=1, max=MAX_TOKENS, help="Tokens of every caption.")] = 20,
    regions: Annotated[int, typer.Option(min=1, max=MAX_REGIONS, help="Grid cells or regions an image.")] = 144,
    visual_dim: Annotated[int, typer.Option(min=1, max=MAX_CHANNELS, help="Channels of the features.")] = 1536,
    vocab_size: options.VocabularySizeOption = 10_000,
    repeats: Annotated[int, typer.Option(min=2, max=100_000, help="Timed repetitions of each setting.")] = 30,
    energy_seconds: Annotated[
        float,
        typer.Option(
            min=0, max=MAX_ENERGY_S, help="Seconds over which energy is measured, where the device reports it."
        ),
    ] = 5.0,
    device: options.DeviceOption = "auto",
    precision: Annotated[str, typer.Option(help="fp32, bf16 or both, separated by a comma.")] = "fp32",
    threads: Annotated[
        int | None, typer.Option(min=1, max=MAX_PROCESSES, help="Processor threads, pinned to cores.")
    ] = None,
    output: options.TableFormatOption = "table",
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Write everything that was measured to this JSON file."),
    ] = None,
    force: ForceOption = False,
    hub: options.HubOption = None,
    plugin: options.PluginOption = None,
) -> None:
    """Measure latency, throughput, memory and energy of captioning, each model in its own process.

    From features to finished captions, with random weights and captions of full length; of hf:, from what its
    processor gives, with its own weights. A time is marked as noisy (~) where its spread is wide, where it drifts, or
    where other processes keep the machine busy.
    """
    check_out(out, force=force)
    with doing("Loading torch"):
        from harness.benchmark.hub_model import checkpoint_job, find_checkpoints, hub_options
        from harness.benchmark.plan import choose_device
        from harness.config.model_patterns import expand_models, split_patterns
        from harness.data.hub import PREFIX
        from harness.measure.captioning_costs import Effort
        from harness.measure.isolated import BenchmarkJob, run_isolated
        from harness.utils.plugins import load_plugins

    load_plugins(plugin)
    settings = optional_preset(preset, change)
    precisions = split_patterns(precision)
    if not precisions or set(precisions) - {"fp32", "bf16"}:
        raise BenchError(f"--precision {precision!r} is unknown", "choose fp32, bf16 or fp32,bf16")
    answers: list[BenchmarkResult] = []
    environment: dict[str, Any] = {}
    failures: dict[str, str] = {}
    sizes = {"vocab_size": vocab_size, "visual_dim": visual_dim}
    common: dict[str, Any] = {
        **sizes,
        "regions": regions,
        "max_len": caption_length,
        "device": str(choose_device(device)),
        "batches": positive_integers(batch, "--batch", MAX_BATCH),
        "widths": positive_integers(beam, "--beam", MAX_BEAM),
        "precisions": precisions,
        "threads": threads or usable_cores(),
        "effort": Effort(repeats, energy_seconds),
        "plugins": tuple(plugin or ()),
    }
    names = expand_models(split_patterns(models), is_stored=lambda name: name.startswith(PREFIX))
    checkpoints = find_checkpoints(names, hub_options(hub or (), ("prompt", "attention")))
    with progress_aside() as reporter, reporter.task("Measuring", len(names)) as task:
        for name in names:
            if name in checkpoints:
                job = checkpoint_job(checkpoints[name], common)
            else:
                arguments = settings.model_arguments(name, **sizes) if settings else {}
                job = BenchmarkJob(model=name, arguments=arguments, **common)
            try:
                results, environment = run_isolated(job)
                answers += results
                times = [answer.costs["latency_median"] for answer in results]
                if all(time.value is None for time in times):
                    failures[job.model] = f"nothing was measured: {times[0].reason}"
            except BenchError as error:
                failures[job.model] = str(error)
            if out is not None:  # after every model: an interrupted command keeps what it has
                content = {
                    "asked": {name: value for name, value in asdict(job).items() if name not in _OF_A_MODEL},
                    "environment": environment,
                    "answers": list(map(asdict, answers)),
                    "failures": failures,
                }
                deliver(json.dumps(content, indent=1) + "\n", out)
            task.advance(detail=name)
    echo(_format_answers(answers, output), nl=False)
    print_notes(_measurement_notes(answers, environment), output)
    for name, reason in failures.items():
        echo(f"failed: {name}: {reason}", err=True)
    if failures:
        raise typer.Exit(1)


def _format_answers(answers: Sequence[BenchmarkResult], form: TableFormat) -> str:
    if form == "csv":
        return _as_csv(answers)
    several = len({answer.precision for answer in answers}) > 1
    devices = any(answer.costs[name].value is not None for answer in answers for name in _ON_DEVICES)
    header = ["Model", "Batch", "Beam", *["Type"] * several, "ms", "±", "Quartiles", "Images/s", "MiB"]
    header += ["Device MiB", "Reserved", "J/image"] * devices
    rows = []
    for answer in answers:
        median, margin, speed, memory = (answer.costs[name] for name in _COLUMNS)
        noise = "~" if answer.costs["latency_noisy"].value else ""
        quartiles = "-".join(_shown(side, 1e3) for side in (median.low, median.high) if side is not None) or "-"
        row = [answer.model, str(answer.batch), str(answer.width), *[answer.precision] * several]
        row += [noise + _shown(median.value, 1e3), _shown(margin.value, 1e3), quartiles]
        row += [_shown(speed.value), _shown(memory.value)]
        rows.append(row + [_shown(answer.costs[name].value) for name in _ON_DEVICES] * devices)
    return format_table(header, rows, form)


def _shown(value: float | None, factor: float = 1.0) -> str:
    from reports.numbers import significant

    return "-" if value is None else significant(value * factor)


def _as_csv(answers: Sequence[BenchmarkResult]) -> str:
    parts = ("value", "unit", "low", "high", "reason")
    rows = []
    for answer in answers:
        for name, cost in answer.costs.items():
            row = [answer.model, answer.batch, answer.width, answer.precision, name]
            row += [getattr(cost, part) for part in parts]
            rows.append(["" if cell is None else str(cell) for cell in row])
    return format_table(["model", "batch", "beam", "precision", "cost", *parts], rows, "csv")


def _measurement_notes(answers: Sequence[BenchmarkResult], environment: dict[str, Any]) -> list[str]:
    """Where it was measured, what is noise, and why something is missing."""
    notes = []
    if environment:
        device, threads, cores = (environment[name] for name in ("device", "threads", "pinned_cores"))
        device_name = device.get("name", environment["cpu"]) or device["type"]
        plural = "" if threads == 1 else "s"
        pinned = f" on core{plural} {','.join(map(str, cores))}" if cores else ""
        notes.append(
            f"{device_name}, {threads} thread{plural}{pinned}, torch {environment['packages']['torch']}. Median of "
            "timed batches, from features to captions; ±: how far the median of another run lies, in 9 of 10 tries. "
            "MiB: most memory of the whole process."
        )
        if process_count := environment["state"].get("other_processes"):
            notes.append(f"Warning: {process_count} other processes used the device.")
    if any(answer.model.startswith("hf:") for answer in answers):
        inputs = "from the processor's output for copies of a picture of 640 x 480"
        notes.append(f"hf: {inputs}, by transformers' own search.")
    noisy = [answer for answer in answers if answer.state.get("noise")]
    if noisy:
        reasons = dict.fromkeys(reason for answer in noisy for reason in answer.state["noise"])
        examples = "; ".join(list(reasons)[:3])
        examples += "; ..." if len(reasons) > 3 else "."
        notes.append(f"~ noisy, {len(noisy)} of {len(answers)} times: {examples}")
    missing: dict[str, dict[str, None]] = {}
    for name, cost in (cost_item for answer in answers for cost_item in answer.costs.items()):
        if cost.reason is not None:
            missing.setdefault(cost.reason, {})[name] = None
    return notes + [f"Not measured: {', '.join(names)}: {reason}." for reason, names in missing.items()]


COMMANDS = {"measure": measure}
