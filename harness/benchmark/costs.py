"""What runs cost: the memory that training may take, what it took, the passes counted, and how long captioning takes.

Captioning is timed at the end of a run, or later where other models train at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle, pairwise
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np
import torch

from harness.benchmark.context import RunContext
from harness.benchmark.hub_model import HubModel
from harness.benchmark.saved_model import FILE, SavedModel, open_saved
from harness.config.run import RunConfig, TrainedRun, config_of
from harness.data.images import load_image
from harness.data.vocabulary import as_read
from harness.inference.generate import search_of
from harness.measure.captioning_costs import Effort, Timed, time_captioning, time_generation, untimed
from harness.measure.energy import not_measured
from harness.measure.estimate import WEIGHT, DataShape, PassCosts, work_of_stages
from harness.measure.flops import FlopCounts, count_encoder, count_flops
from harness.measure.inputs import example_for, example_visual
from harness.measure.memory import TRAINED, PeakMemory, counted_parameters, require_memory
from harness.measure.model_modes import eval_mode
from harness.measure.speed import a100_seconds, peak_macs
from harness.training.stage import stages_for
from harness.training.trainer import TrainState
from harness.utils.plugins import contain_exits
from harness.utils.workspace import Workspace
from results.costs import OTHER_SEED
from results.records import Quantity, RunSpec
from results.runs.reading import one_run
from results.store.rescoring import add_costs, runs_without_cost
from results.store.store import Store
from zoo.captioner import Captioner, HasBackbone, Visual

if TYPE_CHECKING:
    from harness.benchmark.services import Services
    from harness.inference.hub_captioner import HubCaptioner

TRAINING_COSTS = {
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
BASE_BYTES = 1_000_000_000
"""Of a process that trains: Python, torch, prepared images and batches (`docs/training.md`)."""
_COPIES = 2


def memory_bytes(configs: Sequence[RunConfig], context: RunContext) -> int:
    """An estimate for the largest of the runs: a process, and weights, gradients, moments and copies of a model."""
    return BASE_BYTES + (TRAINED + _COPIES * WEIGHT) * max(
        (_parameters(config, context) for config in configs), default=0
    )


def require_room(config: TrainedRun, context: RunContext) -> None:
    """BenchError if what is trained does not fit into the memory that is free here."""
    parameters = _parameters(config, context)
    require_memory(config.model, parameters, torch.device("cpu"))  # where it is built
    require_memory(config.model, parameters, context.compute.device, TRAINED)


def _parameters(config: RunConfig, context: RunContext) -> int:
    """Of a model that is trained from random weights on features; others are counted as nothing."""
    if config.kind != "trained" or config.weights is not None:
        return 0
    return counted_parameters(config.model, **context.sizes, **config.arguments)


def members_training(keys: Sequence[str], store: Store) -> dict[str, Quantity]:
    """What the members of an ensemble took together, of what can be added up; NULL where one was not trained here."""
    totals = not_measured(TRAINING_COSTS, "an ensemble is not trained: its members are")
    costs_of_members = {key: one_run(store, key).costs if store.status(key) else {} for key in keys}
    for name in ("train_seconds", "train_gmac", "train_a100_hours_estimate"):
        unit = TRAINING_COSTS[name]
        costs = {
            key: member.get(name, Quantity(None, "it was not trained here")) for key, member in costs_of_members.items()
        }
        unknown = next((key for key, cost in costs.items() if cost.value is None), None)
        if unknown is not None:
            totals[name] = Quantity(None, f"of the member {unknown}: {costs[unknown].reason}", unit)
            continue
        low = high = None
        if all(cost.low is not None for cost in costs.values()):
            low, high = (sum(getattr(cost, side) for cost in costs.values()) for side in ("low", "high"))
        totals[name] = Quantity(sum(cost.value or 0.0 for cost in costs.values()), None, unit, low, high)
    return totals


def macs_per_image(model: Captioner, counts: FlopCounts | None, context: RunContext) -> list[float]:
    """Mean multiply-accumulates of a presentation of an image in each stage, but validation; none if uncounted."""
    if counts is None:
        return []
    length = min(usual_length(context), model.max_len)
    if isinstance(model, HasBackbone):  # a backbone of its own is counted
        costs = pass_costs(model, cells=1, caption_length=length)
    else:
        decoder = counts.teacher_forced.macs - counts.encoder.macs  # of captions as long as they may be
        costs = PassCosts(
            encoder=counts.encoder.macs,
            start=counts.start.macs,
            step=counts.step.macs,
            caption=round(decoder * length / counts.caption_length),
        )
    data = DataShape(
        train=len(context.data.train),
        val=0,
        captions=fmean(len(sample.captions) for sample in context.data.train),
        caption_length=length,
    )
    stages = work_of_stages(stages_for(model, context.preset.schedule), costs, data, context.inputs.decoding.max_len)
    return [(stage.training + stage.decoding) / stage.images for stage in stages]


def training_costs(
    summary: TrainState, memory: PeakMemory, macs_per_image: Sequence[float], context: RunContext
) -> dict[str, Quantity]:
    """What training came to; the A100's hours are an estimate with bounds (`harness.measure.speed`)."""
    elapsed = summary.seconds + summary.data_wait_seconds
    jobs = context.compute.settings.jobs
    beside = Quantity(float(jobs - 1)) if jobs else Quantity(None, "which runs shared its machine is not known")
    values = {
        "train_seconds": Quantity(summary.seconds),
        "train_images_per_second": Quantity(summary.images / summary.seconds),
        "train_steps": Quantity(float(summary.total_steps)),
        "train_data_wait": Quantity(100 * summary.data_wait_seconds / elapsed),
        "train_beside": beside,
        **_work(summary, macs_per_image, context),
        **memory.quantities("train"),
    }
    return {name: replace(values[name], unit=unit) for name, unit in TRAINING_COSTS.items()}


def _work(summary: TrainState, macs_per_image: Sequence[float], context: RunContext) -> dict[str, Quantity]:
    """Multiply-accumulates of the training, the device's utilisation, and an A100's time for the same work."""
    device = context.compute.device
    precision = context.compute.precision
    names = ("train_gmac", "train_gmac_per_second", "train_utilisation", "train_a100_hours_estimate")
    if len(macs_per_image) != len(summary.images_at_stage_ends):
        return dict.fromkeys(names, Quantity(None, "its multiply-accumulates could not be counted for every stage"))
    images_of_stages = (
        end - start for start, end in pairwise([0, *summary.images_at_stage_ends])
    )  # a stage may have stopped early
    macs = sum(images * per_image for images, per_image in zip(images_of_stages, macs_per_image, strict=True))
    rate = macs / summary.seconds
    costs = {"train_gmac": Quantity(macs / 1e9), "train_gmac_per_second": Quantity(rate / 1e9)}
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    peak = peak_macs(name, precision)
    if peak is None:
        reason = (
            f"the peak rate of {name} is not known here"
            if name
            else "no GPU: the utilisation of a CPU is not comparable"
        )
        return costs | dict.fromkeys(names[2:], Quantity(None, reason))
    device_rate = rate / context.compute.settings.devices
    same_share, same_rate = (seconds / 3600 for seconds in a100_seconds(macs, device_rate, peak, precision))
    low, high = sorted((same_share, same_rate))
    return costs | {
        "train_utilisation": Quantity(100 * device_rate / peak),
        "train_a100_hours_estimate": Quantity(same_share, low=low, high=high),
    }


def pass_costs(model: Captioner, *, cells: int, caption_length: int) -> PassCosts:
    """The costs of one image of `cells` grid cells or regions."""
    visual = example_for(model, length=cells)
    body = model
    body_input = visual
    if isinstance(model, HasBackbone):
        visual = visual.to(next(model.parameters()).device)
        with torch.inference_mode(), eval_mode(model):
            tokens = model.encode(visual).features.shape[1]
        body = model.body
        body_input = example_visual(body.visual, length=tokens)
    counts = count_flops(body, body_input, caption_length=caption_length, beam_size=1)
    backbone = 0 if body is model else count_encoder(model, visual).macs - counts.encoder.macs
    return PassCosts(
        encoder=counts.encoder.macs,
        start=counts.start.macs,
        step=counts.step.macs,
        caption=counts.teacher_forced.macs - counts.encoder.macs,
        backbone=backbone,
    )


def usual_length(context: RunContext) -> int:
    """Tokens of the longest caption of a batch, the end token included: of one caption in a hundred."""
    vocabulary = context.inputs.vocabulary
    read = as_read(context.data.train[:200], vocabulary.preparation)
    lengths = [len(vocabulary.tokenize(caption)) + 1 for sample in read for caption in sample.captions]
    return min(round(float(np.percentile(lengths, 99))), context.preset.vocabulary.max_len - 1)


ROUNDS = 2  # how often each image is captioned: what rounds differ by is noise, what images differ by is not
THREADS = 1
"""On a processor: one image is too little work for more, and the same number on every machine can be compared."""
DEFERRED = "not timed yet: other models trained at the same time; the same command again does it"
ELSEWHERE = "not timed: its weights are not in this workspace"


def one_image(model: Captioner, context: RunContext) -> Visual:
    """A test image as the model reads it, to measure costs with."""
    return context.source(model.visual).visual([context.data.typical_image()], model.visual).to("cpu")


def timed_images(image_ids: Sequence[int], count: int) -> list[int]:
    """So many of the images, or all where they are fewer: one of each of as many equal stretches, by a fixed seed."""
    count = min(count, len(image_ids))
    random = np.random.default_rng(0)
    edges = [index * len(image_ids) // count for index in range(count + 1)]
    return [image_ids[int(random.integers(first, last))] for first, last in pairwise(edges)]


def time_model(model: Captioner, context: RunContext) -> Timed:
    """How long captioning test images takes, one by one, and what energy; `DEFERRED` while other models may be at work.

    All images are in memory before the first is timed.
    """
    if context.compute.settings.jobs != 1:
        return untimed(DEFERRED)
    preset = context.preset
    source = context.source(model.visual)
    image_ids = [sample.image_id for sample in context.data.evaluated["test"]]
    return time_captioning(
        model,
        [source.visual([image_id], model.visual) for image_id in timed_images(image_ids, preset.latency_repeats)],
        search_of(context.inputs.decoding, context.inputs.vocabulary),
        effort=Effort(ROUNDS, preset.energy_seconds),
        threads=THREADS,
        precision=context.compute.precision,
    )


def time_deferred(specs: Sequence[RunSpec], services: Services) -> None:
    """Time what was `DEFERRED` of these runs, one after the other, while nothing else runs here.

    A run whose weights are not here is passed over, with that reason.
    """
    store = services.store
    workspace = services.workspace
    reporter = services.reporter
    keys = runs_without_cost(store, DEFERRED)
    rows: dict[object, list[RunSpec]] = {}
    for spec in (spec for spec in specs if spec.key in keys):
        if spec.kind == "hub" or (weights_folder(spec.key, config_of(spec), workspace) / FILE).is_file():
            rows.setdefault((spec.model, *spec.signature.items()), []).append(spec)
        else:
            add_costs(store, spec.key, untimed(ELSEWHERE).costs, {})
    if not rows:
        return
    untimed_specs = [spec for runs in rows.values() for spec in runs]
    config = config_of(untimed_specs[0])
    seeds = config.preset.timed_seeds or len(untimed_specs)
    timed_specs = [spec for runs in rows.values() for spec in runs[:seeds]]
    where = services.environment(torch.device(config.execution.device))  # another machine may have trained them
    with reporter.task("timing captions", len(timed_specs)) as task:
        for spec in timed_specs:
            timed = _time_stored(spec, services)
            add_costs(store, spec.key, timed.costs, {"measurement": {**where, **timed.state}})
            task.advance(detail=spec.model)
    for spec in (spec for runs in rows.values() for spec in runs[seeds:]):
        add_costs(store, spec.key, untimed(OTHER_SEED).costs, {})
    reporter.log(f"timed captions of {len(timed_specs)} runs, one at a time")


def weights_folder(key: str, config: RunConfig, workspace: Workspace) -> Path:
    """Where the weights of a run lie: of a stored run that is scored again, in that one's folder."""
    return workspace.run_folder(config.model if config.kind == "stored" else key)


def time_hub(captioner: HubCaptioner, context: RunContext) -> Timed:
    """As `time_model`, for a checkpoint of transformers' own interface, from its processor's output to its tokens."""
    if context.compute.settings.jobs != 1:
        return untimed(DEFERRED)
    preset = context.preset
    data = context.data
    device = context.compute.device
    samples = {sample.image_id: sample for sample in data.evaluated["test"]}
    timed_samples = [samples[image_id] for image_id in timed_images(list(samples), preset.latency_repeats)]
    inputs = [captioner.inputs([load_image(data.dataset.path(sample))]) for sample in timed_samples]
    turns = cycle(inputs)

    def work() -> None:
        captioner.generate(next(turns), context.inputs.decoding)

    return time_generation(work, len(inputs), device, effort=Effort(ROUNDS, preset.energy_seconds), threads=THREADS)


def _time_stored(spec: RunSpec, services: Services) -> Timed:
    try:
        config = config_of(spec)
        folder = weights_folder(spec.key, config, services.workspace)
        context = services.context(config.model_copy(update={"execution": replace(config.execution, jobs=1)}))
        with contain_exits():
            if config.kind == "hub":
                model = HubModel.of(config)
                return time_hub(model.open(context.compute.device, context.compute.precision), context)
            return time_model(*open_saved(SavedModel.load(folder), folder, context))
    except Exception as error:  # one model that cannot be opened any more must not keep the others from being timed
        return untimed(str(error) or type(error).__name__)
