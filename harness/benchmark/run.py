"""One run, from its stored configuration to its captions, scores and costs: read from top to bottom."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch

from harness.benchmark.baselines import majority_caption, retrieved_captions
from harness.benchmark.captions import score_captions
from harness.benchmark.context import BenchmarkData, RunContext
from harness.benchmark.costs import (
    COSTS,
    macs_per_image,
    members_training,
    one_image,
    require_room,
    time_hub,
    time_model,
    training_costs,
    weights_folder,
)
from harness.benchmark.hub_model import HubModel, SavedHubModel
from harness.benchmark.plan_runs import published_weights
from harness.benchmark.saved_model import (
    VOCABULARY,
    WEIGHTS,
    SavedModel,
    open_saved,
    refuse_other_features,
    save_ensemble,
)
from harness.benchmark.scoring import score_people, score_split
from harness.benchmark.train import fit
from harness.config.run import (
    CaptionsRun,
    EnsembleRun,
    HubRun,
    PretrainedRun,
    ReferenceRun,
    RunConfig,
    StoredRun,
    TrainedRun,
)
from harness.data.backbones.backbone import Backbone, TrainableBackbone
from harness.data.images import load_image
from harness.inference.attention import attention_records, check_attends, chosen_images, shown_parts
from harness.inference.generate import Captions, caption_images
from harness.key import built_with, model_sources
from harness.measure.captioning_costs import Counted, count_captioning, count_mean_caption, counted
from harness.measure.energy import missing
from harness.measure.flops import KeptCounts
from harness.measure.memory import PeakMemory
from harness.measure.model_modes import preserve_state
from harness.metrics.evaluator import Evaluator
from harness.training.finished_stages import FinishedStages
from harness.training.losses import StepLoss
from harness.utils.errors import BenchError
from harness.utils.precision import autocast
from harness.utils.progress import Reporter
from results.records import AttentionRecord, EpochRecord, Outcome, Quantity, SplitResult
from zoo import Captioner, create_model, model_card
from zoo.attention_maps import attends
from zoo.laws import check_laws
from zoo.registry import is_shipped

if TYPE_CHECKING:
    from harness.benchmark.services import Services

_NOT_TRAINED: Final = {
    "pretrained": "a published model as it is: nothing was trained here",
    "stored": "the weights were stored before, nothing was trained here",
}
_LAW_IMAGES: Final = 3


def run(
    key: str,
    config: RunConfig,
    context: RunContext,
    services: Services,
    *,
    on_epoch: Callable[[EpochRecord], None],
    on_step: Callable[[StepLoss], None],
    reporter: Reporter,
    kept: FinishedStages | None = None,
) -> Outcome:
    """Execute a run as its configuration says; all that it leaves on disk lies in its folder of the workspace.

    Raises:
        WeightsMissing: those of a published model are not on this machine.
        BenchError, ZooError: what a user can put right.
    """
    folder, evaluator = weights_folder(key, config, services.workspace), services.evaluator
    match config:
        case CaptionsRun():
            return score_captions(config, context.data, evaluator)
        case ReferenceRun():
            return _score_reference(config.model, context.data, evaluator)
        case HubRun():
            return _run_hub(config, context, evaluator, folder, reporter)
        case TrainedRun():
            return _run_trained(config, context, evaluator, folder, on_epoch, on_step, reporter, kept)
        case EnsembleRun():
            _save_members(config, services, folder)
            outcome = _run_untrained(config, context, evaluator, folder, reporter)
            costs = {**outcome.costs, **members_training(config.members, services.store)}
            return replace(outcome, costs=costs, checkpoint=None)
        case PretrainedRun() | StoredRun():
            return _run_untrained(config, context, evaluator, folder, reporter)


def _run_trained(
    config: TrainedRun,
    context: RunContext,
    evaluator: Evaluator,
    folder: Path,
    on_epoch: Callable[[EpochRecord], None],
    on_step: Callable[[StepLoss], None],
    reporter: Reporter,
    stages: FinishedStages | None,
) -> Outcome:
    """Train a model, then caption, score and measure it with the weights of its best epoch."""
    torch.manual_seed(config.seed)
    model, context, arguments = open_model(config, context, folder)
    _save_description(config, arguments, context, folder)
    kept = None
    if config.weights is None:  # counts that other seeds and runs made
        built = {"arguments": built_with(config.model, arguments), "sources": model_sources(config.model, arguments)}
        kept = KeptCounts(context.data.cache / "gmac", {"model": config.model, **built})
    counts = _count(model, context, kept, reporter)
    macs = macs_per_image(model, counts.counts, context)
    with PeakMemory(context.execution.device) as memory:
        summary = fit(model, config.seed, context, folder, on_epoch, reporter, on_step, stages)
    costs = counts.costs | training_costs(summary, memory, macs, context)
    execution = context.execution
    environment = {"training": execution.config.record(execution.device, summary.micro_batches)}
    return _caption_and_measure(model, context, evaluator, folder, counts, costs, environment, kept, reporter)


def _run_untrained(
    config: PretrainedRun | StoredRun | EnsembleRun,
    context: RunContext,
    evaluator: Evaluator,
    folder: Path,
    reporter: Reporter,
) -> Outcome:
    """Caption, score and measure a model whose weights are there."""
    torch.manual_seed(config.seed)
    model, context, arguments = open_model(config, context, folder)
    if config.kind == "pretrained":
        _save_description(config, arguments, context, folder)
    counts = _count(model, context, None, reporter)
    reason = _NOT_TRAINED["pretrained" if config.kind == "pretrained" else "stored"]
    costs = counts.costs | missing(COSTS, reason)
    return _caption_and_measure(model, context, evaluator, folder, counts, costs, {}, None, reporter)


def _count(model: Captioner, context: RunContext, kept: KeptCounts | None, reporter: Reporter) -> Counted:
    """The multiply-accumulates of captioning one image."""
    decoding = context.inputs.decoding
    with reporter.step("counting GMAC"):
        return count_captioning(
            model,
            one_image(model, context),
            beam_size=decoding.beam_size,
            max_len=decoding.max_len,
            kept=kept,
        )


def _caption_and_measure(
    model: Captioner,
    context: RunContext,
    evaluator: Evaluator,
    folder: Path,
    counts: Counted,
    costs: dict[str, Quantity],
    environment: dict[str, Any],
    kept: KeptCounts | None,
    reporter: Reporter,
) -> Outcome:
    """Caption and score every evaluated split, and time captions."""
    execution, decoding = context.execution, context.inputs.decoding
    seen, splits = one_image(model, context), []
    reporter.watch(stage="captioning")

    def caption(image_ids: list[int], title: str) -> Captions:
        return caption_images(
            model,
            context.inputs.vocabulary,
            context.source(model.visual),
            image_ids,
            decoding,
            device=execution.device,
            precision=execution.precision,
            reporter=reporter,
            title=title,
            replayed=execution.device.type == "cuda",
        )

    for captions, memory, result, seconds in _scored(caption, context, evaluator):
        if result.split == "test":
            count = len(result.captions)
            costs["caption_images_per_second"] = Quantity(count / captions.seconds, unit="images/s")
            costs |= memory.quantities("caption")
            length = captions.generated / count
            costs |= count_mean_caption(model, seen, beam_size=decoding.beam_size, length=length, kept=kept)
            costs["score_seconds"] = Quantity(seconds, unit="s")
            if attends(model):
                result = replace(result, attention=_attention(model, context, captions.tokens, reporter))
        splits.append(result)

    # The time of captioning.
    with reporter.step("timing captions"):
        timed = time_model(model, context)
    return Outcome(
        splits=tuple(splits),
        costs=costs | timed.costs,
        environment=environment | {"measurement": timed.state},
        checkpoint=str(folder / WEIGHTS),
        operators=counts.operators,
    )


def _save_members(config: EnsembleRun, services: Services, folder: Path) -> None:
    """Write how the members are opened together; BenchError where one is not finished."""
    store = services.store
    if unfinished := [key for key in config.members if store.status(key) not in {"finished", None}]:
        raise BenchError(f"not finished: {', '.join(unfinished)}", "give the same command again once they are")
    save_ensemble(config.members, folder)


def _scored(
    caption: Callable[[list[int], str], Captions], context: RunContext, evaluator: Evaluator
) -> Iterator[tuple[Captions, PeakMemory, SplitResult, float]]:
    """The captions of every evaluated split, the memory that they took, their scores, and the seconds of scoring."""
    for split, samples in context.data.evaluated.items():
        with PeakMemory(context.execution.device) as memory:
            captions = caption([sample.image_id for sample in samples], f"  captioning {split}")
        yield captions, memory, *score_split(split, captions.by_image, context.data, evaluator)


def _run_hub(config: HubRun, context: RunContext, evaluator: Evaluator, folder: Path, reporter: Reporter) -> Outcome:
    """Caption, score and measure a checkpoint of transformers' own interface; leaves a description in `folder`."""
    from harness.inference.hub_captioner import caption_with_hub  # transformers, which other runs do without

    execution, decoding, data = context.execution, context.inputs.decoding, context.data
    model = HubModel.of(config)
    captioner = model.open(execution.device, execution.precision)
    SavedHubModel(model=model, decoding=decoding).save(folder)
    samples, typical = data.evaluated["test"], data.typical_image()
    picture = next(data.dataset.path(sample) for sample in samples if sample.image_id == typical)
    inputs = captioner.inputs([load_image(picture)])
    costs = counted(captioner.network, lambda: captioner.counts(inputs, decoding)).costs
    costs |= missing(COSTS, _NOT_TRAINED["pretrained"])
    splits, jobs = [], execution.config.jobs or 4  # of a cluster it is not known how many share a node

    def caption(image_ids: list[int], title: str) -> Captions:
        return caption_with_hub(captioner, data.dataset, image_ids, decoding, reporter=reporter, title=title, jobs=jobs)

    for captions, memory, result, seconds in _scored(caption, context, evaluator):
        if result.split == "test":
            count = len(result.captions)
            costs["caption_images_per_second"] = Quantity(count / captions.seconds, unit="images/s")
            costs["caption_length_mean"] = Quantity(captions.generated / count, unit="tokens")
            costs["score_seconds"] = Quantity(seconds, unit="s")
            costs |= memory.quantities("caption")
        splits.append(result)
    timed = time_hub(captioner, context)
    used = {"measurement": timed.state, "attention": captioner.attention, "prompt": captioner.prompt.text}
    return Outcome(splits=tuple(splits), costs=costs | timed.costs, environment=used)


def open_model(
    config: TrainedRun | PretrainedRun | StoredRun | EnsembleRun, context: RunContext, folder: Path
) -> tuple[Captioner, RunContext, dict[str, Any]]:
    """The model of a run before any training, the context with its own inputs, and the arguments that it was made with.

    BenchError where a stored run is damaged or was trained on other features, or the model does not fit into memory.
    """
    if config.kind in {"stored", "ensemble"}:
        saved = SavedModel.load(folder)
        model, context = open_saved(saved, folder, context)
        if model.visual.kind not in {"pixels", "none"}:
            refuse_other_features(config.model, saved, context.data)
        return model, context, {}
    if isinstance(config, PretrainedRun) or (isinstance(config, TrainedRun) and config.weights is not None):
        return published_weights(config).open(context)
    assert isinstance(config, TrainedRun)
    require_room(config, context)
    backbone = context.data.backbone
    arguments = model_arguments(config.model, config.arguments, backbone)
    model = build_model(config.model, arguments, backbone=backbone, **context.sizes)
    model.to(context.execution.device)
    hold_to_laws(config.model, model, context)
    return model, context, arguments


def hold_to_laws(name: str, model: Captioner, context: RunContext) -> None:
    """BrokenLawError where a plug-in's model breaks a law at the run's sizes; tests hold the zoo's own to them.

    The model, on the run's device, and random numbers are left as they were.
    """
    if is_shipped(name):
        return
    vocabulary, images = context.inputs.vocabulary, [sample.image_id for sample in context.data.train[:_LAW_IMAGES]]
    visual = context.source(model.visual).visual(images, model.visual).to(context.execution.device)
    # Convolutions of another batch would round otherwise in TF32.
    with preserve_state(model), torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        check_laws(model.eval(), visual, vocab_size=len(vocabulary), begin=vocabulary.bos)


def model_arguments(name: str, arguments: Mapping[str, Any], backbone: Backbone) -> dict[str, Any]:
    """The arguments to create a model with; one with a backbone gets the run's, a network, in place of its preset's."""
    if not model_card(name).has_backbone:
        return dict(arguments)
    if not isinstance(backbone, TrainableBackbone):
        raise BenchError(
            f"{name} trains its backbone, but {backbone.name} has nothing to train",
            "add --backbone NAME, a model of timm's, and --backbone-weights FILE (or the word random)",
        )
    if backbone.level is not None:
        raise BenchError(
            f"{name} sees the last features of its backbone, not those of level {backbone.level}",
            "leave out --backbone-option level",
        )
    return {**arguments, "backbone": backbone.name.partition(".")[0], "backbone_options": dict(backbone.arguments)}


def build_model(
    name: str, arguments: Mapping[str, Any], *, vocab_size: int, visual_dim: int, backbone: Backbone
) -> Captioner:
    """An untrained model, but for the backbone within it, which has the weights of the run's.

    `visual_dim` are the channels of the cached features; a model on pixels knows its own.
    """
    model = create_model(name, vocab_size=vocab_size, visual_dim=visual_dim, **arguments)
    if isinstance(backbone, TrainableBackbone) and model_card(name).has_backbone:
        inner, given = model.get_submodule("backbone"), backbone.state_dict()
        wanted = inner.state_dict().keys()
        if missing := sorted(wanted - given.keys()):
            raise BenchError(f"the backbone {backbone.name} has no weights for {', '.join(missing[:4])}")
        inner.load_state_dict({name: given[name] for name in wanted})
    return model


def _save_description(
    config: TrainedRun | PretrainedRun, arguments: dict[str, Any], context: RunContext, folder: Path
) -> None:
    """Write to `folder` what `bench caption` later needs, beside the weights."""
    context.inputs.vocabulary.save(folder / VOCABULARY)
    card, features = model_card(config.model), context.data.feature_config
    SavedModel(
        model=config.model,
        arguments=arguments,
        visual_dim=context.data.visual_dim,
        features=features if card.graph != "none" else features.model_copy(update={"graphs": None}),
        backbone_digest=context.data.backbone.digest,
        preprocessing=context.inputs.preprocessing,
        decoding=context.inputs.decoding,
        trained=config.kind == "trained",
        graph_entries=None if card.graph == "none" else context.graph_entries(card.graph),
        pretrained=None if config.weights is None else published_weights(config).place(),
    ).save(folder)


def _score_reference(row: str, data: BenchmarkData, evaluator: Evaluator) -> Outcome:
    """Score a row without a model: people, retrieval, or one caption for all."""
    reason = "a reference row has no model"
    costs = {name: Quantity(None, reason) for name in ("parameters", "train_seconds", "gmac_beam")}
    splits = []
    always = majority_caption(data.train) if row == "majority" else ""
    for split, samples in data.evaluated.items():
        if row == "human":
            result, seconds = score_people(split, data, evaluator)
        else:
            captions = {sample.image_id: always for sample in samples}
            if row == "retrieval":
                assert data.features is not None
                captions = retrieved_captions(samples, data.train, data.features)
            result, seconds = score_split(split, captions, data, evaluator)
        if split == "test":
            costs["score_seconds"] = Quantity(seconds, unit="s")
        splits.append(result)
    return Outcome(splits=tuple(splits), costs=costs, environment={})


def _attention(
    model: Captioner, context: RunContext, tokens: dict[int, list[int]], reporter: Reporter
) -> tuple[AttentionRecord, ...]:
    """Attention maps of a few captions; none, and a note why, where the places of the visual tokens are unknown."""
    source, execution = context.source(model.visual), context.execution
    said = {image_id: tokens[image_id] for image_id in chosen_images(list(tokens))}
    parts = shown_parts(context.data.dataset, context.inputs.preprocessing)
    try:
        check_attends("the model", model, source)
        with autocast(execution.device, execution.precision):
            records = attention_records(model, context.inputs.vocabulary, source, said, parts, device=execution.device)
            return tuple(records)
    except BenchError as error:
        reporter.note(f"  no attention maps: {error}")
        return ()
