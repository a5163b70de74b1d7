"""From a model's name and a run's backbone to the model: on its features, or with its network as a part of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from harness.data.backbones.backbone import Backbone, TrainableBackbone
from harness.utils.errors import BenchError
from zoo import Captioner, create_model, model_card


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
