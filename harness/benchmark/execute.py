"""One run, from its spec to its captions, scores and costs: one executor for each kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from harness.benchmark.baselines import majority_caption, retrieved_captions
from harness.benchmark.context import BenchmarkData, RunContext
from harness.benchmark.engines.estimate import require_room
from harness.benchmark.evaluate import count_costs, evaluate
from harness.benchmark.identity.run_key import built_with, present_sources
from harness.benchmark.own_models import hold_to_laws
from harness.benchmark.pretrained import Pretrained
from harness.benchmark.saved_model import VOCABULARY, WEIGHTS, SavedModel, open_saved
from harness.benchmark.scoring import score_people, score_split
from harness.benchmark.timing import one_image
from harness.benchmark.train import fit
from harness.benchmark.training_costs import no_training, predict_training, training_costs
from harness.data.backbones.backbone import Backbone, TrainableBackbone
from harness.data.regions.opening import needs_backbone
from harness.measure.captioning_costs import Counted
from harness.measure.flops.kept import KeptCounts
from harness.measure.memory import PeakMemory
from harness.metrics.evaluator import Evaluator
from harness.training.losses import StepLoss
from harness.training.trainer import CHECKPOINTS
from harness.utils.errors import BenchError
from harness.utils.progress import Reporter
from harness.utils.workspace import Workspace
from results.records import EpochRecord, Outcome, Quantity, RunSpec
from zoo import Captioner, create_model, model_card


def execute(
    spec: RunSpec,
    context: RunContext,
    evaluator: Evaluator,
    *,
    workspace: Workspace,
    environment: dict[str, Any],
    on_epoch: Callable[[EpochRecord], None],
    on_step: Callable[[StepLoss], None],
    reporter: Reporter,
) -> Outcome:
    """Execute a run by its kind; all that it leaves on disk lies in its folder of the workspace.

    Raises:
        WeightsMissing: those of a published model are not on this machine.
        BenchError, ZooError: what a user can put right.
    """
    if spec.kind == "reference":
        return _run_reference(spec, context.data, evaluator, environment)
    if spec.kind == "hub":
        from harness.benchmark.hub_run import run_hub  # imports transformers, which other runs do without

        return run_hub(spec, context, evaluator, workspace.run_folder(spec.key), environment, reporter)
    workspace.fetch_run(spec.model if spec.kind == "stored" else spec.key)
    if spec.kind == "stored":
        ready = _open_stored(spec, context, workspace.run_folder(spec.model))
    else:
        folder = workspace.run_folder(spec.key)
        torch.manual_seed(spec.seed)
        if spec.kind == "pretrained":
            ready = _open_pretrained(spec, context, folder)
        else:
            ready = _train(spec, context, folder, _uploading(spec, workspace, on_epoch), on_step, reporter)
            if workspace.remote is not None:
                workspace.remote.push(folder, f"runs/{spec.key}")
    outcome = evaluate(
        ready.model,
        ready.context,
        evaluator,
        counted=ready.counted,
        costs=ready.costs,
        environment=environment | ready.environment,
        weights=ready.folder / WEIGHTS,
        reporter=reporter,
        kept=ready.kept,
    )
    if workspace.remote is not None and spec.kind != "stored":
        workspace.remote.push(ready.folder, f"runs/{spec.key}", lambda path: path.parts[0] != CHECKPOINTS)
    return outcome


def _uploading(
    spec: RunSpec, workspace: Workspace, on_epoch: Callable[[EpochRecord], None]
) -> Callable[[EpochRecord], None]:
    """`on_epoch` that also uploads the run as it stands; it is called before the epoch's own checkpoint is written."""
    remote = workspace.remote
    if remote is None:
        return on_epoch

    def record_and_upload(record: EpochRecord) -> None:
        on_epoch(record)
        remote.push(workspace.run_folder(spec.key), f"runs/{spec.key}")

    return record_and_upload


@dataclass(frozen=True, slots=True)
class _Ready:
    """A model to evaluate, with the context of its own inputs and what is known of its costs before."""

    model: Captioner
    context: RunContext
    folder: Path
    counted: Counted
    costs: dict[str, Quantity]
    environment: dict[str, Any] = field(default_factory=dict)
    kept: KeptCounts | None = None


def _train(
    spec: RunSpec,
    context: RunContext,
    folder: Path,
    on_epoch: Callable[[EpochRecord], None],
    on_step: Callable[[StepLoss], None],
    reporter: Reporter,
) -> _Ready:
    """Train from random weights, or further from published ones; the model has the weights of the best epoch."""
    model, context, arguments = open_to_train(spec, context)
    trained_further = "pretrained" in spec.config
    kept = None if trained_further else _kept_counts(spec.model, arguments, context.data.cache)
    _save_description(spec, arguments, context, folder)
    counted = count_costs(model, context, kept)
    prediction = predict_training(model, one_image(model, context), counted.counts, context)
    execution = context.execution
    with PeakMemory(execution.device) as memory:
        summary = fit(model, spec.seed, context, folder, on_epoch, reporter, on_step)
    costs = training_costs(summary, memory, prediction, context)
    recorded = execution.config.record(execution.device, summary.micro_batches)
    return _Ready(model, context, folder, counted, costs, {"training": recorded}, kept)


def open_to_train(spec: RunSpec, context: RunContext) -> tuple[Captioner, RunContext, dict[str, Any]]:
    """The model of a `trained` run before training, the context with its own inputs and tuned preset, its arguments."""
    context = context.for_model(spec.model)
    if "pretrained" in spec.config:
        return Pretrained(spec.model, spec.config["pretrained"]).open(context)
    model, arguments = _untrained(spec, context)
    return model, context, arguments


def _open_pretrained(spec: RunSpec, context: RunContext, folder: Path) -> _Ready:
    """A published model as it is."""
    model, context, arguments = Pretrained(spec.model, spec.config["pretrained"]).open(context)
    _save_description(spec, arguments, context, folder)
    costs = no_training("a published model as it is: nothing was trained here")
    return _Ready(model, context, folder, count_costs(model, context), costs)


def _open_stored(spec: RunSpec, context: RunContext, folder: Path) -> _Ready:
    """The saved model in `folder`, with its own vocabulary and decoding.

    Raises:
        BenchError: the run is damaged, or it was trained on other features than these.
    """
    saved = SavedModel.load(folder)
    model, context = open_saved(saved, folder, context)
    if model.visual.kind not in {"pixels", "none"}:
        _refuse_other_features(spec.model, saved, context.data)
    costs = no_training("the weights were stored before, nothing was trained here")
    return _Ready(model, context, folder, count_costs(model, context), costs)


def _run_reference(spec: RunSpec, data: BenchmarkData, evaluator: Evaluator, environment: dict[str, Any]) -> Outcome:
    """Score a row without a model: people, retrieval, or one caption for all."""
    reason = "a reference row has no model"
    costs = {name: Quantity(None, reason) for name in ("parameters", "train_seconds", "gmac_beam")}
    splits = []
    always = majority_caption(data.train) if spec.model == "majority" else ""
    for split, samples in data.evaluated.items():
        if spec.model == "human":
            result, seconds = score_people(split, data, evaluator)
        elif spec.model == "majority":
            captions = {sample.image_id: always for sample in samples}
            result, seconds = score_split(split, captions, data, evaluator)
        else:
            assert data.features is not None
            captions = retrieved_captions(samples, data.train, data.features)
            result, seconds = score_split(split, captions, data, evaluator)
        if split == "test":
            costs["score_seconds"] = Quantity(seconds, unit="s")
        splits.append(result)
    return Outcome(splits=tuple(splits), costs=costs, environment=environment)


def _refuse_other_features(name: str, saved: SavedModel, data: BenchmarkData) -> None:
    """BenchError where a saved run was trained on other features than this benchmark has."""
    theirs, ours = saved.features.regions, data.feature_config.regions
    if (theirs is None) != (ours is None):
        seen, shown = ("grid cells", "regions") if theirs is None else ("regions", "grid cells")
        hint = "leave out --regions" if theirs is None else "add --regions SOURCE, of the kind that it was trained on"
        raise BenchError(f"{name} sees {seen}, and here are {shown}", hint)
    if theirs is not None and ours is not None:
        cut = [(needs_backbone(regions.source), regions.bins) for regions in (theirs, ours)]
        if cut[0] != cut[1] or (not cut[0][0] and saved.visual_dim != data.visual_dim):
            raise BenchError(
                f"{name} was trained on other regions: those of {theirs.source}, of {saved.visual_dim} channels",
                "add --regions SOURCE (and --region-bins), of the kind that it was trained on",
            )
    through_backbone = theirs is None or needs_backbone(theirs.source)
    if through_backbone and getattr(saved.preprocessing, "control", "none") != "none":
        raise BenchError(
            f"{name} is a control run: it sees features of images that were preprocessed in another way",
            "the command that made it, with --control, re-uses its scores; `bench caption` captions images with it",
        )
    if through_backbone and saved.backbone_digest != data.backbone.digest:
        raise BenchError(
            f"{name} sees the features of {saved.features.backbone}, not those of {data.backbone.describe()}",
            f"add --backbone {saved.features.backbone} with the weights that it was trained with",
        )


def _save_description(spec: RunSpec, arguments: dict[str, Any], context: RunContext, folder: Path) -> None:
    """Write to `folder` what `bench caption` later needs, beside the weights."""
    context.inputs.vocabulary.save(folder / VOCABULARY)
    published, card = spec.config.get("pretrained"), model_card(spec.model)
    features = context.data.feature_config.resolved()
    SavedModel(
        model=spec.model,
        arguments=arguments,
        visual_dim=context.data.visual_dim,
        features=features if card.graph != "none" else features.model_copy(update={"graphs": None}),
        backbone_digest=context.data.backbone.digest,
        preprocessing=context.inputs.preprocessing,
        decoding=context.inputs.decoding,
        trained=spec.kind == "trained",
        graph_entries=None if card.graph == "none" else context.graph_entries(card.graph),
        pretrained=None if published is None else Pretrained(spec.model, published).place(),
    ).save(folder)


def _untrained(spec: RunSpec, context: RunContext) -> tuple[Captioner, dict[str, Any]]:
    """The model on the run's device, and the arguments that it was made with; a plug-in's keeps the laws."""
    require_room(spec, context)
    data = context.data
    arguments = model_arguments(spec.model, spec.config["arguments"], data.backbone)
    model = build_model(
        spec.model,
        arguments,
        vocab_size=len(context.inputs.vocabulary),
        visual_dim=data.visual_dim,
        backbone=data.backbone,
    )
    model.to(context.execution.device)
    hold_to_laws(spec.model, model, context)
    return model, arguments


def _kept_counts(name: str, arguments: Mapping[str, Any], cache: Path) -> KeptCounts:
    """The counts of this model that other seeds and runs made."""
    made_by = {"arguments": built_with(name, arguments), "sources": present_sources(name, arguments)}
    return KeptCounts(cache / "gmac", {"model": name, **made_by})


def model_arguments(name: str, arguments: Mapping[str, Any], backbone: Backbone) -> dict[str, Any]:
    """The arguments to create a model with; one with a backbone gets the run's in place of its preset's.

    Raises:
        BenchError: the model needs a network for a backbone, and this one is none.
    """
    if not model_card(name).has_backbone:
        return dict(arguments)
    if not isinstance(backbone, TrainableBackbone):
        raise BenchError(
            f"{name} trains its backbone, but {backbone.name} has nothing to train",
            "add --backbone NAME, a model of timm's, and --backbone-weights FILE (or the word random)",
        )
    return {**arguments, "backbone": backbone.name.partition(".")[0], "backbone_options": dict(backbone.arguments)}


def build_model(
    name: str, arguments: Mapping[str, Any], *, vocab_size: int, visual_dim: int, backbone: Backbone
) -> Captioner:
    """An untrained model, but for the backbone within it, which has the weights of the run's.

    Args:
        name: a registered model.
        arguments: as `model_arguments` gives them.
        vocab_size: special tokens included.
        visual_dim: channels of the cached features; a model on pixels knows its own.
        backbone: the run's.
    """
    model = create_model(name, vocab_size=vocab_size, visual_dim=visual_dim, **arguments)
    if isinstance(backbone, TrainableBackbone) and model_card(name).has_backbone:
        inner = model.get_submodule("backbone")
        _copy_weights(inner, backbone)
    return model


def _copy_weights(inner: nn.Module, backbone: TrainableBackbone) -> None:
    given = backbone.state_dict()
    wanted = inner.state_dict().keys()
    missing = sorted(wanted - given.keys())
    if missing:
        raise BenchError(f"the backbone {backbone.name} has no weights for {', '.join(missing[:4])}")
    inner.load_state_dict({name: given[name] for name in wanted})
