"""The table of `bench plan`: what every model costs, one line each, and where its time is known from."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.utils.errors import BenchError

if TYPE_CHECKING:
    from rich.console import Console

    from harness.config.preset import Preset
    from harness.measure.estimate import DataShape, PassCosts, StagePlan
    from results.queries.durations import Duration


@dataclass(frozen=True, slots=True)
class Estimate:
    """What one run of a model takes.

    Attributes:
        seconds: None where no run is stored and no speed was stated or measured.
        runs: stored ones whose mean the seconds are; 0 where they are counts over a speed.
    """

    model: str
    costs: PassCosts
    stages: Sequence[StagePlan]
    captioning: StagePlan
    seconds: float | None
    runs: int = 0


def estimate(
    model: str,
    preset: Preset,
    shape: DataShape,
    *,
    stored: Mapping[str, Duration],
    measure_on: str | None,
    throughput: float | None,
    devices: int,
) -> Estimate:
    """Count one run of a model, and tell its time.

    Args:
        stored: what finished runs of these conditions took; used where neither of the next two is given.
        measure_on: the device to time the model on.
        throughput: TFLOP/s of a device.
    """
    import torch

    from harness.measure.estimate import Speed, plan_captioning, plan_stages
    from harness.measure.speed import measure_speed
    from harness.runner.benchmark import choose_device
    from harness.runner.pass_costs import pass_costs
    from zoo import create_model

    sizes = {"vocab_size": shape.words, "visual_dim": shape.channels}
    built = create_model(model, **sizes, **preset.model_arguments(model, **sizes))
    length = min(shape.caption_length, built.max_len)
    costs, visual = pass_costs(built, cells=shape.cells, caption_length=length)
    decoding = preset.decoding
    stages = plan_stages(preset.schedule, costs, shape, decoding.max_len)
    captioning = plan_captioning(costs, shape, decoding.beam_size, decoding.max_len)
    speed = None
    if throughput is not None:
        rate = throughput * 1e12 / 2  # one multiply-accumulate is two operations
        speed = Speed(rate, rate)
    elif measure_on is not None:
        device: torch.device = choose_device(measure_on)
        speed = measure_speed(built.to(device), visual.to(device), costs, length)
    if speed is not None:
        return Estimate(
            model, costs, stages, captioning, sum(each.seconds(speed, devices) for each in (*stages, captioning))
        )
    if model in stored:
        return Estimate(model, costs, stages, captioning, stored[model].seconds, stored[model].runs)
    return Estimate(model, costs, stages, captioning, None)


def stored_durations(preset: Preset, data: str, workspace: Path, db: str | None) -> Mapping[str, Duration]:
    """What runs of this preset on this data took in a workspace; empty where there is none yet.

    Raises:
        BenchError: the workspace is no folder.
        StoreError: `db` is no database, or cannot be read.
    """
    from harness.cli.inputs import open_results, read_results
    from harness.runner.identity.signature import training_fields
    from harness.utils.workspace import Workspace
    from results.queries.durations import run_durations

    if os.path.lexists(workspace) and not workspace.is_dir():
        raise BenchError(f"the workspace {workspace} is not a folder", "name a folder with --workspace")
    if db is None and not Path(Workspace(workspace).database).exists():
        return {}
    with open_results(workspace, db) as store:
        return read_results(store, lambda: run_durations(store, data, training_fields(preset)))


def show_estimates(estimates: Sequence[Estimate], console: Console) -> None:
    """Print the stages, which all models share, and a line a model."""
    from harness.measure.estimate import run_bytes
    from harness.utils.progress import describe_seconds
    from reports.content.numbers import count, size
    from reports.text.layout import folded, plain_table

    for stage in estimates[0].stages if estimates else ():
        console.print(f"stage {stage.stage}: {stage.epochs:,} epochs, {stage.steps:,} steps, {stage.images:,} images")
    table = plain_table(["Model"], ["Parameters", "Training", "Captioning", "Disk", "Time"])
    for each in estimates:
        training = sum(stage.training + stage.decoding for stage in each.stages)
        work = [f"{count(macs)}MAC" for macs in (training, each.captioning.decoding)]
        told = "-" if each.seconds is None else describe_seconds(each.seconds)
        parameters = count(each.costs.parameters)
        table.add_row(folded(each.model), parameters, *work, size(run_bytes(each.costs.parameters)), told)
    console.print(table)


def show_time(
    estimates: Sequence[Estimate], runs: Mapping[str, int], devices: int, *, how: str, console: Console
) -> None:
    """Print the time of all runs one after the other, and what it is told from, or why it cannot be told.

    Args:
        runs: of each model.
        how: what a speed is from, "" without one.
    """
    from harness.utils.progress import describe_seconds

    unknown = [each.model for each in estimates if each.seconds is None]
    known = [each for each in estimates if each.seconds is not None]
    if known:
        seconds = sum(runs[each.model] * (each.seconds or 0.0) for each in known)
        hours = f"{seconds * devices / 3600:,.2f} device-hours"
        source = how or "as stored runs of these conditions took, all of their work included"
        console.print(f"an ESTIMATE of {hours} ({describe_seconds(seconds)} on {devices}), {source};")
        console.print(
            "one model at a time"
            + ("; extraction of features, scoring and waiting for data are not in it" if how else "")
        )
    if unknown:
        of = "" if not known else f" of {', '.join(unknown)}"
        console.print(f"time{of}: not estimated, no run of these conditions is stored here;")
        console.print("state --throughput TFLOP/s, or add --measure")
