"""The model of a run, before any training: built from its configuration, or opened with weights that are there."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch

from harness.benchmark.context import RunContext
from harness.benchmark.costs import require_room
from harness.benchmark.plan_runs import published_weights
from harness.benchmark.saved_model import VOCABULARY, SavedModel, open_saved, refuse_other_features
from harness.config.run import EnsembleRun, PretrainedRun, StoredRun, TrainedRun
from harness.data.backbones.backbone import Backbone, TrainableBackbone
from harness.measure.model_modes import preserve_state
from harness.utils.errors import BenchError
from zoo import Captioner, create_model, model_card
from zoo.laws import check_laws
from zoo.registry import is_shipped

_LAW_IMAGES: Final = 3


def open_model(
    config: TrainedRun | PretrainedRun | StoredRun | EnsembleRun, context: RunContext, folder: Path
) -> tuple[Captioner, RunContext, dict[str, Any]]:
    """The model of a run before any training, the context with its own inputs, and the arguments that it was made with.

    BenchError if a stored run is damaged or was trained on other features, or the model does not fit into memory.
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
    model.to(context.compute.device)
    check_captioner(config.model, model, context)
    return model, context, arguments


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
        inner = model.get_submodule("backbone")
        state = backbone.state_dict()
        names = inner.state_dict().keys()
        if missing := sorted(names - state.keys()):
            raise BenchError(f"the backbone {backbone.name} has no weights for {', '.join(missing[:4])}")
        inner.load_state_dict({name: state[name] for name in names})
    return model


def check_captioner(name: str, model: Captioner, context: RunContext) -> None:
    """BrokenLawError where a plug-in's model breaks a law at the run's sizes; tests hold the zoo's own to them.

    The model, on the run's device, and random numbers are left as they were.
    """
    if is_shipped(name):
        return
    vocabulary = context.inputs.vocabulary
    images = [sample.image_id for sample in context.data.train[:_LAW_IMAGES]]
    visual = context.source(model.visual).visual(images, model.visual).to(context.compute.device)
    # Convolutions of another batch would round otherwise in TF32.
    with preserve_state(model), torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        check_laws(model.eval(), visual, vocab_size=len(vocabulary), begin=vocabulary.bos)


def save_description(
    config: TrainedRun | PretrainedRun, arguments: dict[str, Any], context: RunContext, folder: Path
) -> None:
    """Write to `folder` what `bench caption` later needs, beside the weights."""
    context.inputs.vocabulary.save(folder / VOCABULARY)
    card = model_card(config.model)
    features = context.data.feature_config
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
        pretrained=None if config.weights is None else published_weights(config).location(),
    ).save(folder)
