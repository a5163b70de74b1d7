"""What a run of each model takes: its work counted, and its time as stored, stated or measured."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from harness.utils.errors import BenchError

if TYPE_CHECKING:
    import torch

    from harness.benchmark.benchmark import Request
    from harness.config.preset import Preset
    from harness.measure.estimate import DataShape, PassCosts, Speed, StagePlan
    from results.runs.durations import Duration

Source = Literal["stored", "stated", "measured", ""]
MOMENT_S, MOMENT_IMAGES = 0.1, 4
"""Least seconds of each of the two timings of a model that were not asked for, and the images of their batches."""
BUDGET_S = 20.0
"""After so long no further model is timed without being asked for."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What one run of a model takes.

    Attributes:
        seconds: None where `why` says why they are not known.
        source: where the seconds are from.
    """

    model: str
    costs: PassCosts
    stages: Sequence[StagePlan]
    captioning: StagePlan
    seconds: float | None
    source: Source = ""
    why: str = ""


@dataclass(slots=True)
class Timing:
    """Where times are taken from.

    Attributes:
        stored: what finished runs of these conditions took, by model.
        throughput: TFLOP/s of a device, where stated.
        device: to time models on.
        measured: whether all models are timed, for some seconds, as `--measure` asks.
        elsewhere: why this machine's speed says nothing; "" where it does.
        spent: seconds of timing so far.
    """

    device: torch.device
    throughput: float | None = None
    measured: bool = False
    elsewhere: str = ""
    stored: Mapping[str, Duration] = field(default_factory=dict)
    spent: float = 0.0


def estimate(model: str, preset: Preset, shape: DataShape, timing: Timing, devices: int) -> Estimate:
    """Count one run of a model, and tell its time: as stated or stored, or else measured."""
    from harness.benchmark.pass_costs import pass_costs
    from harness.measure.estimate import Speed, plan_captioning, plan_stages
    from harness.measure.memory import create_within_memory
    from harness.measure.speed import IMAGES, MIN_SECONDS, measure_speed
    from harness.training.sentence_graphs import stages_for

    sizes = {"vocab_size": shape.words, "visual_dim": shape.channels}
    built = create_within_memory(model, **sizes, **preset.model_arguments(model, **sizes))
    length = min(shape.caption_length, built.max_len)
    costs, visual = pass_costs(built, cells=shape.cells, caption_length=length)
    decoding = preset.decoding
    stages = plan_stages(stages_for(built, preset.schedule), costs, shape, decoding.max_len)
    captioning = plan_captioning(costs, shape, decoding.beam_size, decoding.max_len)
    work = (model, costs, stages, captioning)
    if timing.throughput is not None:
        rate = timing.throughput * 1e12 / 2  # one multiply-accumulate is two operations
        return Estimate(*work, _seconds(stages, captioning, Speed(rate, rate), devices), "stated")
    if not timing.measured:
        if model in timing.stored:
            return Estimate(*work, timing.stored[model].seconds, "stored")
        if timing.elsewhere:
            return Estimate(*work, None, why=timing.elsewhere)
        if timing.spent >= BUDGET_S:
            return Estimate(*work, None, why=f"{BUDGET_S:.0f} s of measuring are over; --measure times all models")
    images, seconds = (IMAGES, MIN_SECONDS) if timing.measured else (MOMENT_IMAGES, MOMENT_S)
    started = time.monotonic()
    speed = measure_speed(
        built.to(timing.device), visual.to(timing.device), costs, length, images=images, min_s=seconds
    )
    timing.spent += time.monotonic() - started
    return Estimate(*work, _seconds(stages, captioning, speed, devices), "measured")


def _seconds(stages: Sequence[StagePlan], captioning: StagePlan, speed: Speed, devices: int) -> float:
    return sum(each.seconds(speed, devices) for each in (*stages, captioning))


def stored_durations(request: Request, dataset: str) -> Mapping[str, Duration]:
    """What runs of the request's preset on the data of this name took in its workspace; empty where there is none yet.

    Raises:
        BenchError: the workspace is no folder.
        StoreError: `--db` is no database, or cannot be read.
    """
    from harness.benchmark.identity.signature import training_fields
    from harness.benchmark.preview import has_results
    from harness.cli.inputs import open_results
    from results.runs.durations import run_durations

    place = request.workspace
    if os.path.lexists(place.root) and not place.root.is_dir():
        raise BenchError(f"the workspace {place.root} is not a folder", "name a folder with --workspace")
    if not has_results(request):
        return {}
    with open_results(place.root, place.db) as store:
        return run_durations(store, dataset, training_fields(request.preset))
