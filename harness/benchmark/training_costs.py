"""What training may take of memory, what it cost, and the counts of passes that this and `bench plan` rest on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

import numpy as np
import torch

from harness.benchmark.context import RunContext
from harness.data.vocabulary import as_read
from harness.measure.energy import missing
from harness.measure.estimate import WEIGHT, DataShape, PassCosts, plan_stages
from harness.measure.flops.counting import FlopCounts, count_encoder, count_flops
from harness.measure.inputs import example_for, example_visual
from harness.measure.memory import TRAINED, PeakMemory, counted_parameters, require_memory
from harness.measure.model_modes import eval_mode
from harness.measure.speed import a100_seconds, peak_macs
from harness.training.sentence_graphs import stages_for
from harness.training.trainer import TrainState
from results.records import Quantity, RunSpec
from results.runs.reading import one_run
from results.store.store import Store
from zoo.captioner import Captioner, HasBackbone, Visual

COSTS = {
    "train_seconds": "s",
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
BASE_BYTES = 1_000_000_000
"""Of a process that trains: Python, torch, prepared images and batches (`docs/training.md`)."""
_COPIES = 2
"""Of the weights besides: the best ones, and a checkpoint while it is written."""


def memory_bytes(specs: Sequence[RunSpec], context: RunContext) -> int:
    """An estimate for the largest of the runs: a process, and weights, gradients, moments and copies of a model."""
    per_parameter = TRAINED + _COPIES * WEIGHT
    return BASE_BYTES + per_parameter * max((_parameters(spec, context) for spec in specs), default=0)


def require_room(spec: RunSpec, context: RunContext) -> None:
    """BenchError where what is trained does not fit into the memory that is free here."""
    parameters = _parameters(spec, context)
    require_memory(spec.model, parameters, torch.device("cpu"))  # where it is built
    require_memory(spec.model, parameters, context.execution.device, TRAINED)


def _parameters(spec: RunSpec, context: RunContext) -> int:
    """Of a model that is trained from random weights on features; others are counted as nothing."""
    if spec.kind != "trained" or "pretrained" in spec.config:
        return 0
    return counted_parameters(spec.model, **context.sizes, **spec.config["arguments"])


def no_training(reason: str) -> dict[str, Quantity]:
    """NULL for every cost of `COSTS`."""
    return missing(COSTS, reason)


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


def macs_per_image(model: Captioner, counts: FlopCounts | None, context: RunContext) -> float | None:
    """Mean multiply-accumulates of one presentation of an image, over all stages, validation aside; None if uncounted.

    Args:
        counts: of the model on one image.
    """
    if counts is None:
        return None
    length = min(usual_length(context), model.max_len)
    if isinstance(model, HasBackbone):  # a backbone of its own is counted
        costs, _ = pass_costs(model, cells=1, caption_length=length)
    else:
        decoder = counts.teacher_forced.macs - counts.encoder.macs  # of captions as long as they may be
        costs = PassCosts(
            parameters=counts.parameters,
            encoder=counts.encoder.macs,
            start=counts.start.macs,
            step=counts.step.macs,
            caption=round(decoder * length / counts.caption_length),
        )
    data = DataShape(
        train=len(context.data.train),
        val=0,
        test=0,
        captions=fmean(len(sample.captions) for sample in context.data.train),
        words=len(context.inputs.vocabulary),
        caption_length=length,
    )
    stages = plan_stages(stages_for(model, context.preset.schedule), costs, data, context.inputs.decoding.max_len)
    return sum(stage.training + stage.decoding for stage in stages) / sum(stage.images for stage in stages)


def training_costs(
    summary: TrainState, memory: PeakMemory, macs_per_image: float | None, context: RunContext
) -> dict[str, Quantity]:
    """What training came to; the A100's hours are an estimate with bounds (`harness.measure.speed`)."""
    elapsed = summary.seconds + summary.data_wait_seconds
    values = {
        "train_seconds": Quantity(summary.seconds),
        "train_images_per_second": Quantity(summary.images / summary.seconds),
        "train_steps": Quantity(float(summary.total_steps)),
        "train_data_wait": Quantity(100 * summary.data_wait_seconds / elapsed),
        "train_beside": Quantity(float(context.execution.config.jobs - 1)),
        **_work(summary, macs_per_image, context),
        **memory.quantities("train"),
    }
    return {name: replace(values[name], unit=unit) for name, unit in COSTS.items()}


def _work(summary: TrainState, macs_per_image: float | None, context: RunContext) -> dict[str, Quantity]:
    """Multiply-accumulates of the training, the device's utilisation, and an A100's time for the same work."""
    device, precision = context.execution.device, context.execution.precision
    names = ("train_gmac", "train_gmac_per_second", "train_utilisation", "train_a100_hours_estimate")
    if macs_per_image is None:
        return dict.fromkeys(names, Quantity(None, "its multiply-accumulates could not be counted"))
    macs = summary.images * macs_per_image
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


def pass_costs(model: Captioner, *, cells: int, caption_length: int) -> tuple[PassCosts, Visual]:
    """The costs of one image, and an example image to probe speed with.

    Args:
        cells: grid cells or regions, for models that do not find them themselves.
    """
    visual = example_for(model, length=cells)
    body, seen = model, visual
    if isinstance(model, HasBackbone):
        visual = visual.to(next(model.parameters()).device)
        with torch.inference_mode(), eval_mode(model):
            tokens = model.encode(visual).features.shape[1]
        body = model.body
        seen = example_visual(body.visual, length=tokens)
    counts = count_flops(body, seen, caption_length=caption_length, beam_size=1)
    backbone = 0 if body is model else count_encoder(model, visual).macs - counts.encoder.macs
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
