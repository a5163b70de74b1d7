"""`bench cost measure`: time, memory and energy of captioning, measured here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli.cost.measurements import format_answers, measurement_notes, write_answers
from harness.cli.inputs import optional_preset, positive_integers
from harness.cli.options import (
    ChangeOption,
    DeviceOption,
    HubAttentionOption,
    PluginOption,
    PromptOption,
    RowsOption,
    TableFormatOption,
    VocabularySizeOption,
    complete_preset,
    finite,
)
from harness.cli.output import OutFile
from harness.cli.tables import TableFormat, print_notes
from harness.config.execution import usable_cores
from harness.config.limits import MAX_BEAM, MAX_CHANNELS, MAX_ENERGY_S, MAX_PROCESSES, MAX_REGIONS, MAX_TOKENS
from harness.utils.errors import BenchError

if TYPE_CHECKING:
    from harness.measure.isolated import BenchmarkResult

MAX_BATCH = 65_536

_EXAMPLES = """
**Examples**

- `bench cost measure --models updown,m2` : batches of 1, 16 and 64 images, greedy and by a beam of 5

- `bench cost measure --models hf:FOLDER,git --batch 1,4` : a checkpoint of the hub, with its own weights

- `bench cost measure --batch 1 --beam 1 --threads 1 --format csv`

- `bench cost measure --preset matched-width --device cuda --precision fp32,bf16 --out costs.json`
"""


def register(group: typer.Typer) -> None:
    """Add the command to `bench cost`."""
    group.command("measure", epilog=_EXAMPLES)(measure)


def measure(
    models: RowsOption = "all",
    preset: Annotated[
        str | None, typer.Option(help="Sizes of a preset. Without it, each paper's.", autocompletion=complete_preset)
    ] = None,
    change: ChangeOption = None,
    batch: Annotated[str, typer.Option(help="Batch sizes, separated by commas.")] = "1,16,64",
    beam: Annotated[str, typer.Option(help="Beam sizes, separated by commas; 1 is greedy.")] = "1,5",
    caption_length: Annotated[int, typer.Option(min=1, max=MAX_TOKENS, help="Tokens of every caption.")] = 20,
    regions: Annotated[int, typer.Option(min=1, max=MAX_REGIONS, help="Grid cells or regions an image.")] = 144,
    visual_dim: Annotated[int, typer.Option(min=1, max=MAX_CHANNELS, help="Channels of the features.")] = 1536,
    vocab_size: VocabularySizeOption = 10_000,
    repeats: Annotated[int, typer.Option(min=2, max=100_000, help="Timed repetitions of each setting.")] = 30,
    energy_seconds: Annotated[
        float,
        typer.Option(
            min=0,
            max=MAX_ENERGY_S,
            callback=finite,
            help="Seconds over which energy is measured, where the device reports it.",
        ),
    ] = 5.0,
    device: DeviceOption = "auto",
    precision: Annotated[str, typer.Option(help="fp32, bf16 or both, separated by a comma.")] = "fp32",
    threads: Annotated[
        int | None, typer.Option(min=1, max=MAX_PROCESSES, help="Processor threads, pinned to cores.")
    ] = None,
    output: TableFormatOption = TableFormat.table,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Write everything that was measured to this JSON file."),
        OutFile(rb'\{\s*"asked":'),
    ] = None,
    prompt: PromptOption = None,
    hub_attention: HubAttentionOption = None,
    plugin: PluginOption = None,
) -> None:
    """Measure latency, throughput, memory and energy of captioning, each model in its own process.

    From features to finished captions, with random weights and captions of full length; of hf:, from what its
    processor gives, with its own weights. A time is marked
    as noisy (~) where its spread is wide, where it drifts, or where other processes keep the machine busy.
    """
    from harness.benchmark.hub import checkpoint_job, find_checkpoints
    from harness.benchmark.hub_model import PREFIX, hub_options
    from harness.benchmark.plan import choose_device
    from harness.config.model_patterns import expand_models, split_patterns
    from harness.measure.captioning_costs import Effort
    from harness.measure.isolated import BenchmarkJob, run_isolated
    from harness.utils.plugins import load_plugins

    load_plugins(plugin)
    settings = optional_preset(preset, change)
    precisions = split_patterns(precision)
    if not precisions or set(precisions) - {"fp32", "bf16"}:
        raise BenchError(f"--precision {precision!r} is unknown", "choose fp32, bf16 or fp32,bf16")
    where, batches, widths = (
        str(choose_device(device)),
        positive_integers(batch, "--batch", MAX_BATCH),
        positive_integers(beam, "--beam", MAX_BEAM),
    )
    answers: list[BenchmarkResult] = []
    environment: dict[str, Any] = {}
    failures: dict[str, str] = {}
    sizes = {"vocab_size": vocab_size, "visual_dim": visual_dim}
    common: dict[str, Any] = {
        **sizes,
        "regions": regions,
        "max_len": caption_length,
        "batches": batches,
        "widths": widths,
        "device": where,
        "precisions": precisions,
        "threads": threads or usable_cores(),
        "effort": Effort(repeats, energy_seconds),
        "plugins": tuple(plugin or ()),
    }
    names = expand_models(split_patterns(models), is_stored=lambda name: name.startswith(PREFIX))
    checkpoints = find_checkpoints(names, hub_options(prompt, None, hub_attention, None))
    for name in names:
        if name in checkpoints:
            question = checkpoint_job(checkpoints[name], common)
        else:
            arguments = settings.model_arguments(name, **sizes) if settings else {}
            question = BenchmarkJob(model=name, arguments=arguments, **common)
        try:
            found, environment = run_isolated(question)
            answers += found
            times = [answer.costs["latency_median"] for answer in found]
            if all(time.value is None for time in times):
                failures[question.model] = f"nothing was measured: {times[0].reason}"
        except BenchError as error:
            failures[question.model] = str(error)
        if out is not None:  # after every model: an interrupted command keeps what it has
            write_answers(out, question, answers, failures, environment)
    typer.echo(format_answers(answers, output), nl=False)
    print_notes(measurement_notes(answers, environment), output)
    for name, reason in failures.items():
        typer.echo(f"failed: {name}: {reason}", err=True)
    if failures:
        raise typer.Exit(1)
