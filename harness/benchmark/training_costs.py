"""What training costs a model: predicted before it begins, by the counts of `bench plan` and a moment's probe, and
what it came to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np
import torch

from harness.benchmark.context import RunContext
from harness.config.schedule import Stage
from harness.data.vocabulary import as_read
from harness.measure.estimate import DataShape, PassCosts, StagePlan, plan_stages
from harness.measure.flops.counting import FlopCounts, count_encoder, count_flops
from harness.measure.inputs import example_for, example_visual
from harness.measure.memory import PeakMemory
from harness.measure.model_modes import eval_mode
from harness.measure.speed import a100_seconds, measure_speed, peak_macs
from harness.training.dropout import DropoutRates
from harness.training.sentence_graphs import stages_for
from harness.training.state import TrainState
from harness.utils.plugins import contain_exits
from harness.utils.precision import autocast
from results.records import Quantity
from results.runs.reading import one_run
from results.store.store import Store
from zoo.captioner import Captioner, HasBackbone, Visual

PROBE_S = 0.15
"""Seconds that each of the two probes takes at least; a wrong prediction costs less than a long one."""
PROBED_IMAGES = 16
"""In a batch of a probe on a processor, whose speed depends little on them; a GPU is probed with whole batches."""
COSTS = {
    "train_seconds": "s",
    "predicted_train_seconds": "s",
    "train_images_per_second": "images/s",
    "train_steps": "",
    "train_data_wait": "%",
    "train_beside": "",
    "train_gmac": "GMAC",
    "train_gmac_per_second": "GMAC/s",
    "train_utilisation": "%",
    "train_a100_hours_estimate": "h",
    "train_peak_memory_host": "MiB",
    "train_peak_memory_device": "MiB",
    "train_peak_memory_reserved": "MiB",
}
"""What training is stored as, with units."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """What training was expected to take: seconds of steps, and multiply-accumulates an image, or NULL and why."""

    seconds: Quantity
    macs_per_image: float | None = None


def no_training(reason: str) -> dict[str, Quantity]:
    """NULL for every cost of `COSTS`."""
    return {name: Quantity(None, reason, unit) for name, unit in COSTS.items()}


def members_training(keys: Sequence[str], store: Store) -> dict[str, Quantity]:
    """What the members of an ensemble took together, of what can be added up; NULL where one was not trained here."""
    found = no_training("an ensemble is not trained: its members are")
    known = [one_run(store, key).costs if store.status(key) else {} for key in keys]
    for name in ("train_seconds", "train_gmac", "train_a100_hours_estimate"):
        costs = [of.get(name, Quantity(None, "it was not trained here")) for of in known]
        lacking = next((at for at, cost in enumerate(costs) if cost.value is None), None)
        if lacking is not None:
            found[name] = Quantity(None, f"of the member {keys[lacking]}: {costs[lacking].reason}", COSTS[name])
        else:
            bounded = all(cost.low is not None for cost in costs)
            low, high = (sum(getattr(cost, side) for cost in costs) if bounded else None for side in ("low", "high"))
            found[name] = Quantity(sum(cost.value or 0.0 for cost in costs), None, COSTS[name], low, high)
    return found


def predict_training(model: Captioner, visual: Visual, counts: FlopCounts | None, context: RunContext) -> Prediction:
    """Count the schedule's work, and probe how fast this device does it in batches as the first stage has them.

    Stages that stop early take less. Validation and waiting for data are not in it, as they are not in
    `train_seconds`.

    Args:
        model: on the run's device; left as it was found.
        counts: of the model on that image; without them there is no prediction.
    """
    if counts is None:
        return Prediction(Quantity(None, "its multiply-accumulates could not be counted", "s"))
    preset, device, machine = context.preset, context.execution.device, context.execution.config
    length = min(usual_length(context), model.max_len)
    costs, seen = _pass_costs(model, visual, counts, length)
    data = DataShape(
        train=len(context.data.train),
        val=0,
        test=0,
        captions=fmean(len(sample.captions) for sample in context.data.train),
        words=len(context.inputs.vocabulary),
        caption_length=length,
    )
    schedule = stages_for(model, preset.schedule)
    stages = plan_stages(schedule, costs, data, context.inputs.decoding.max_len)
    first = schedule.stages[0]
    most = PROBED_IMAGES if device.type == "cpu" else first.batch_size
    try:
        with contain_exits(), _dropout(model, first), autocast(device, context.execution.precision):
            speed = measure_speed(
                model,
                seen.to(device),
                costs,
                length,
                images=min(max(first.batch_size // machine.devices, 1), most),
                captions=1 if first.batch_of == "captions" else first.captions_per_image,
                min_s=PROBE_S,
            )
    except Exception as error:  # training itself says what is wrong, or knows how to meet it: too little memory
        reason = f"the probe failed: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
        return Prediction(Quantity(None, reason, "s"), _per_image(stages))
    seconds = sum(stage.seconds(speed, machine.devices) for stage in stages)
    return Prediction(Quantity(seconds, unit="s"), _per_image(stages))


def training_costs(
    summary: TrainState, memory: PeakMemory, prediction: Prediction, context: RunContext
) -> dict[str, Quantity]:
    """What training came to; the A100's hours are an estimate with bounds (`harness.measure.speed`)."""
    elapsed = summary.seconds + summary.data_wait_seconds
    values = {
        "train_seconds": Quantity(summary.seconds),
        "predicted_train_seconds": prediction.seconds,
        "train_images_per_second": Quantity(summary.images / summary.seconds),
        "train_steps": Quantity(float(summary.total_steps)),
        "train_data_wait": Quantity(100 * summary.data_wait_seconds / elapsed),
        "train_beside": Quantity(float(context.execution.config.jobs - 1)),
        **_work(summary, prediction, context),
        **memory.quantities("train"),
    }
    return {name: replace(values[name], unit=unit) for name, unit in COSTS.items()}


@contextmanager
def _dropout(model: Captioner, stage: Stage) -> Iterator[None]:
    """A stage's dropout for a while: without any, some models take shortcuts."""
    rates = DropoutRates(model)
    try:
        rates.apply(stage)
        yield
    finally:
        rates.restore()


def _work(summary: TrainState, prediction: Prediction, context: RunContext) -> dict[str, Quantity]:
    """Multiply-accumulates of the training, the device's utilisation, and an A100's time for the same work."""
    device, precision = context.execution.device, context.execution.precision
    names = ("train_gmac", "train_gmac_per_second", "train_utilisation", "train_a100_hours_estimate")
    if prediction.macs_per_image is None:
        return dict.fromkeys(names, Quantity(None, prediction.seconds.reason))
    macs = summary.images * prediction.macs_per_image
    rate = macs / summary.seconds
    found = {"train_gmac": Quantity(macs / 1e9), "train_gmac_per_second": Quantity(rate / 1e9)}
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    peak = peak_macs(name, precision)
    if peak is None:
        reason = (
            f"the peak rate of {name} is not known here"
            if name
            else "no GPU: the utilisation of a CPU is not comparable"
        )
        return found | dict.fromkeys(names[2:], Quantity(None, reason))
    each = rate / context.execution.config.devices
    same_share, same_rate = (seconds / 3600 for seconds in a100_seconds(macs, each, peak, precision))
    low, high = sorted((same_share, same_rate))
    return found | {
        "train_utilisation": Quantity(100 * each / peak),
        "train_a100_hours_estimate": Quantity(same_share, low=low, high=high),
    }


def _pass_costs(model: Captioner, visual: Visual, counts: FlopCounts, length: int) -> tuple[PassCosts, Visual]:
    """From the counts there are, which are of captions as long as they may be; a backbone of its own is counted."""
    if isinstance(model, HasBackbone):
        return pass_costs(model, cells=1, caption_length=length)
    decoder = counts.teacher_forced.macs - counts.encoder.macs
    costs = PassCosts(
        parameters=counts.parameters,
        encoder=counts.encoder.macs,
        start=counts.start.macs,
        step=counts.step.macs,
        caption=round(decoder * length / counts.caption_length),
    )
    return costs, visual


def pass_costs(model: Captioner, *, cells: int, caption_length: int) -> tuple[PassCosts, Visual]:
    """The costs of one image, and an example image to probe speed with.

    Args:
        cells: grid cells or regions, for models that do not find them themselves.
    """
    backbone, visual = 0, example_for(model, length=cells)
    counted = model
    if isinstance(model, HasBackbone):
        visual = visual.to(next(model.parameters()).device)
        with torch.inference_mode(), eval_mode(model):
            tokens = model.encode(visual).features.shape[1]
        whole = count_encoder(model, visual).macs
        counted = model.body
        inner = example_visual(counted.visual, length=tokens)
    else:
        inner = visual
    counts = count_flops(counted, inner, caption_length=caption_length, beam_size=1)
    if counted is not model:
        backbone = whole - counts.encoder.macs
    return PassCosts(
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        encoder=counts.encoder.macs,
        start=counts.start.macs,
        step=counts.step.macs,
        caption=counts.teacher_forced.macs - counts.encoder.macs,
        backbone=backbone,
    ), visual


def usual_length(context: RunContext) -> int:
    """Tokens of the longest caption of a batch, the end token included: of one caption in a hundred."""
    vocabulary = context.inputs.vocabulary
    read = as_read(context.data.train[:200], vocabulary.preparation)
    lengths = [len(vocabulary.tokenize(caption)) + 1 for sample in read for caption in sample.captions]
    return min(round(float(np.percentile(lengths, 99))), context.preset.vocabulary.max_len - 1)


def _per_image(stages: list[StagePlan]) -> float:
    """Mean multiply-accumulates of one presentation of an image, over all stages."""
    images = sum(stage.images for stage in stages)
    return sum(stage.training + stage.decoding for stage in stages) / images
