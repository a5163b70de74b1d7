"""A function for each kind of run, from its configuration to captions, scores and costs; `train_run` is the recipe."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch

from harness.benchmark.baselines import majority_caption, retrieved_captions
from harness.benchmark.context import BenchmarkData, RunContext
from harness.benchmark.costs import (
    TRAINING_COSTS,
    macs_per_image,
    members_training,
    one_image,
    time_hub,
    time_model,
    training_costs,
)
from harness.benchmark.hub_model import HubModel, SavedHubModel
from harness.benchmark.models import open_model, save_description
from harness.benchmark.saved_model import save_ensemble
from harness.benchmark.scoring import score_people, score_split
from harness.benchmark.train import train_model
from harness.config.run import EnsembleRun, HubRun, PretrainedRun, StoredRun, TrainedRun
from harness.data.images import load_image
from harness.inference.attention import attention_records, check_attends, chosen_images, shown_parts
from harness.inference.generate import Captions, caption_images
from harness.key import built_with, model_sources
from harness.measure.captioning_costs import Counted, count_captioning, count_mean_caption, counted
from harness.measure.energy import not_measured
from harness.measure.flops import CountCache
from harness.measure.memory import PeakMemory
from harness.metrics.evaluator import Evaluator
from harness.training.checkpoint import WEIGHTS
from harness.training.losses import StepLoss
from harness.training.stage_cache import StageCache
from harness.utils.errors import BenchError
from harness.utils.precision import autocast
from harness.utils.progress import Reporter
from results.records import AttentionRecord, EpochRecord, Outcome, Quantity
from results.store.store import Store
from zoo import Captioner
from zoo.attention_maps import attends

_PUBLISHED: Final = "a published model as it is: nothing was trained here"
_STORED: Final = "the weights were stored before, nothing was trained here"
_JOBS_OF_A_NODE: Final = 4
"""The runs that are assumed to share a node of a cluster, where their number is unknown."""


@dataclass(frozen=True)
class RunTools:
    """What a run is executed with, besides its configuration and its data.

    Attributes:
        folder: where the run writes; for a stored run, the folder of the run whose weights are opened.
        store: the results of the workspace, among them the members of ensembles.
        evaluator: scores captions.
        reporter: shows progress and notes.
        on_epoch: called with each epoch of training.
        on_step: called with the loss of each step.
        stage_cache: finished stages that training may start from; None: there are none.
        held_out: also score captions with each reference left out in turn, as the human rows are scored.
    """

    folder: Path
    store: Store
    evaluator: Evaluator
    reporter: Reporter
    on_epoch: Callable[[EpochRecord], None] = lambda _: None
    on_step: Callable[[StepLoss], None] = lambda _: None
    stage_cache: StageCache | None = None
    held_out: bool = False


def train_run(config: TrainedRun, context: RunContext, tools: RunTools) -> Outcome:
    """Train a model, then caption, score and measure it with the weights of its best epoch.

    Raises:
        WeightsMissing: the weights of a published model are not on this machine.
        BenchError, ZooError: an error that the user can correct.
    """
    # The model with its initial weights, and the file from which it can be opened again.
    torch.manual_seed(config.seed)
    model, context, arguments = open_model(config, context, tools.folder)
    save_description(config, arguments, context, tools.folder)

    # Multiply-accumulates, which all runs of a model with the same arguments share.
    gmac_cache = None
    if config.weights is None:
        identity = {
            "model": config.model,
            "arguments": built_with(config.model, arguments),
            "sources": model_sources(config.model, arguments),
        }
        gmac_cache = CountCache(context.data.cache / "gmac", identity)
    counts = _count_gmac(model, context, tools.reporter, gmac_cache)
    training_macs = macs_per_image(model, counts.counts, context)

    # All stages of the schedule; afterwards the model has its best weights.
    compute = context.compute
    with PeakMemory(compute.device) as memory:
        training = train_model(
            model,
            config.seed,
            context,
            tools.folder,
            tools.on_epoch,
            tools.reporter,
            on_step=tools.on_step,
            stage_cache=tools.stage_cache,
        )
    costs = counts.costs | training_costs(training, memory, training_macs, context)

    # Captions, scores, attention maps and times.
    outcome = _caption_and_measure(model, context, tools, counts, costs, gmac_cache)
    settings = compute.settings.record(compute.device, training.micro_batches)
    return replace(outcome, environment={"training": settings, **outcome.environment})


def evaluate_run(config: PretrainedRun | StoredRun | EnsembleRun, context: RunContext, tools: RunTools) -> Outcome:
    """Caption, score and measure a model that is not trained here."""
    torch.manual_seed(config.seed)
    model, context, arguments = open_model(config, context, tools.folder)
    if config.kind == "pretrained":
        save_description(config, arguments, context, tools.folder)
    counts = _count_gmac(model, context, tools.reporter)
    reason = _PUBLISHED if config.kind == "pretrained" else _STORED
    outcome = _caption_and_measure(model, context, tools, counts, counts.costs | not_measured(TRAINING_COSTS, reason))
    if config.kind == "pretrained":  # its weights are not copied into the run's folder
        return replace(outcome, checkpoint=None)
    return outcome


def evaluate_ensemble(config: EnsembleRun, context: RunContext, tools: RunTools) -> Outcome:
    """Caption, score and measure finished runs as an ensemble; BenchError if one of them is not finished."""
    store = tools.store
    statuses = {key: store.status(key) for key in config.members}  # None: imported weights, which are no run
    unfinished = [key for key, status in statuses.items() if status not in {"finished", None}]
    if unfinished:
        raise BenchError(
            f"members are not finished: {', '.join(unfinished)}", "run the same command again once they are"
        )
    save_ensemble(config.members, tools.folder)
    outcome = evaluate_run(config, context, tools)
    return replace(outcome, costs={**outcome.costs, **members_training(config.members, store)}, checkpoint=None)


def run_hub(config: HubRun, context: RunContext, tools: RunTools) -> Outcome:
    """Caption, score and measure a model of the Hugging Face hub through transformers' own interface."""
    from harness.inference.hub_captioner import caption_with_hub  # imports transformers

    compute = context.compute
    decoding = context.inputs.decoding
    data = context.data
    model = HubModel.of(config)
    captioner = model.open(compute.device, compute.precision)
    SavedHubModel(model=replace(model, batch=None), decoding=decoding).save(tools.folder)
    measured_image = next(sample for sample in data.evaluated["test"] if sample.image_id == data.typical_image())
    inputs = captioner.inputs([load_image(data.dataset.path(measured_image))])
    counts = counted(captioner.network, lambda: captioner.counts(inputs, decoding))
    costs = counts.costs | not_measured(TRAINING_COSTS, _PUBLISHED)
    splits = []
    for split, samples in data.evaluated.items():
        with PeakMemory(compute.device) as memory:
            captions = caption_with_hub(
                captioner,
                data.dataset,
                [sample.image_id for sample in samples],
                decoding,
                reporter=tools.reporter,
                title=f"  captioning {split}",
                batch=model.batch,
                jobs=compute.settings.jobs or _JOBS_OF_A_NODE,
            )
        result, score_seconds = score_split(split, captions.by_image, data, tools.evaluator, held_out=tools.held_out)
        if split == "test":
            costs |= _captioning_costs(captions, memory)
            costs["caption_length_mean"] = Quantity(captions.generated / len(captions.by_image), unit="tokens")
            costs["score_seconds"] = Quantity(score_seconds, unit="s")
        splits.append(result)
    timed = time_hub(captioner, context)
    environment: dict[str, Any] = {
        "measurement": timed.state,
        "attention": captioner.attention,
        "prompt": captioner.prompt.text,
    }
    if model.batch is not None:
        environment["batch"] = model.batch
    return Outcome(splits=tuple(splits), costs=costs | timed.costs, environment=environment)


def score_reference(row: str, data: BenchmarkData, evaluator: Evaluator, *, held_out: bool = False) -> Outcome:
    """Score a reference row: human captions, retrieved captions, or one caption for all images.

    `held_out` is that of `RunTools`.
    """
    reason = "a reference row has no model"
    costs = {name: Quantity(None, reason) for name in ("parameters", "train_seconds", "gmac_beam")}
    constant_caption = majority_caption(data.train, evaluator.settings.tokenizer) if row == "majority" else ""
    splits = []
    for split, samples in data.evaluated.items():
        if row == "human":
            result, seconds = score_people(split, data, evaluator)
        else:
            if row == "retrieval":
                assert data.features is not None
                captions = retrieved_captions(samples, data.train, data.features)
            else:
                captions = dict.fromkeys((sample.image_id for sample in samples), constant_caption)
            result, seconds = score_split(split, captions, data, evaluator, held_out=held_out)
        if split == "test":
            costs["score_seconds"] = Quantity(seconds, unit="s")
        splits.append(result)
    return Outcome(splits=tuple(splits), costs=costs, environment={})


def _count_gmac(
    model: Captioner, context: RunContext, reporter: Reporter, gmac_cache: CountCache | None = None
) -> Counted:
    """The multiply-accumulates of captioning one image, with captions of the greatest length."""
    decoding = context.inputs.decoding
    with reporter.step("counting GMAC"):
        return count_captioning(
            model,
            one_image(model, context),
            beam_size=decoding.beam_size,
            max_len=decoding.max_len,
            cache=gmac_cache,
        )


def _caption_and_measure(
    model: Captioner,
    context: RunContext,
    tools: RunTools,
    counts: Counted,
    costs: Mapping[str, Quantity],
    gmac_cache: CountCache | None = None,
) -> Outcome:
    """Caption, score and time a model on every evaluated split; `costs` are those measured before."""
    compute = context.compute
    decoding = context.inputs.decoding
    reporter = tools.reporter
    costs = dict(costs)
    image = one_image(model, context)
    splits = []
    reporter.watch(stage="captioning")
    for split, samples in context.data.evaluated.items():
        with PeakMemory(compute.device) as memory:
            captions = caption_images(
                model,
                context.inputs.vocabulary,
                context.source(model.visual),
                [sample.image_id for sample in samples],
                decoding,
                device=compute.device,
                precision=compute.precision,
                reporter=reporter,
                title=f"  captioning {split}",
                replayed=compute.device.type == "cuda",
            )
        result, score_seconds = score_split(
            split, captions.by_image, context.data, tools.evaluator, held_out=tools.held_out
        )
        if split == "test":
            costs |= _captioning_costs(captions, memory)
            length = captions.generated / len(captions.by_image)
            costs |= count_mean_caption(model, image, beam_size=decoding.beam_size, length=length, cache=gmac_cache)
            costs["score_seconds"] = Quantity(score_seconds, unit="s")
            if attends(model):
                result = replace(result, attention=_attention_maps(model, context, captions.tokens, reporter))
        splits.append(result)
    with reporter.step("timing captions"):
        timed = time_model(model, context)
    return Outcome(
        splits=tuple(splits),
        costs=costs | timed.costs,
        environment={"measurement": timed.state},
        checkpoint=str(tools.folder / WEIGHTS),
        operators=counts.operators,
    )


def _captioning_costs(captions: Captions, memory: PeakMemory) -> dict[str, Quantity]:
    """Speed and peak memory of captioning a split."""
    speed = Quantity(len(captions.by_image) / captions.seconds, unit="images/s")
    return {"caption_images_per_second": speed, **memory.quantities("caption")}


def _attention_maps(
    model: Captioner, context: RunContext, tokens: dict[int, list[int]], reporter: Reporter
) -> tuple[AttentionRecord, ...]:
    """Attention maps of a few captions; none, and a note, where the model attends to parts of unknown location."""
    source = context.source(model.visual)
    compute = context.compute
    shown_tokens = {image_id: tokens[image_id] for image_id in chosen_images(list(tokens))}
    parts = shown_parts(context.data.dataset, context.inputs.preprocessing)
    vocabulary = context.inputs.vocabulary
    try:
        check_attends("the model", model, source)
        with autocast(compute.device, compute.precision):
            return tuple(attention_records(model, vocabulary, source, shown_tokens, parts, device=compute.device))
    except BenchError as error:
        reporter.note(f"  no attention maps: {error}")
        return ()
