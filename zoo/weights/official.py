"""Choose the converter of a family's released weights.

A converter is a module of this package with `zoo_name` (the zoo's name of a tensor, given the authors'), `read_sizes`
(the arguments of `create_model` that shapes determine) and `from_official`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from zoo.captioner import Captioner
from zoo.errors import ZooError

CONVERTERS = {
    "adaptive_attention": "zoo.weights.recurrent",
    "att2all": "zoo.weights.recurrent",
    "att2in": "zoo.weights.recurrent",
    "aoanet": "zoo.weights.aoa",
    "dlct": "zoo.weights.grid",
    "expansionnet_v1": "zoo.weights.expansionnet",
    "expansionnet_v2": "zoo.weights.expansionnet",
    "gcn_lstm": "zoo.weights.gcn_lstm",
    "get": "zoo.weights.grid",
    "grit": "zoo.weights.grit",
    "image_transformer": "zoo.weights.aoa",
    "m2": "zoo.weights.m2",
    "puret": "zoo.weights.puret",
    "rstnet": "zoo.weights.grid",
    "sgae": "zoo.weights.sgae",
    "show_tell": "zoo.weights.recurrent",
    "transformer": "zoo.weights.transformer",
    "transformer_base": "zoo.weights.expansionnet",
    "updown": "zoo.weights.recurrent",
    "x_lan": "zoo.weights.x_linear",
    "x_transformer": "zoo.weights.x_linear",
}
"""Module by family, the part of a model's name before the slash."""


def from_official(name: str, state_dict: Mapping[str, Tensor], **sizes: Any) -> Captioner:
    """Build a registered model with the authors' weights, in their floating-point type.

    Args:
        name: a registered model, a variant too.
        state_dict: the tensors of a checkpoint under the authors' names; see `zoo.weights.read_checkpoint`.
        sizes: arguments of `create_model` that shapes do not determine, such as `n_heads`, if they differ from the
            preset's; see the converter.

    Raises:
        ZooError: there is no converter, or some tensors do not match, which are all named.
    """
    model: Captioner = _converter(name).from_official(name, state_dict, **sizes)
    return model


def read_sizes(name: str, state_dict: Mapping[str, Tensor]) -> dict[str, Any]:
    """The arguments of `create_model` that the shapes of the authors' tensors determine."""
    sizes: dict[str, Any] = _converter(name).read_sizes(state_dict)
    return sizes


def _converter(name: str) -> Any:
    family = name.split("/")[0]
    if family not in CONVERTERS:
        known = ", ".join(sorted(CONVERTERS))
        raise ZooError(f"there is no converter for released weights of {name!r}", f"there are converters for {known}")
    return importlib.import_module(CONVERTERS[family])
