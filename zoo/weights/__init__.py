"""Convert weights released by the authors to the zoo's names: one converter file per architecture."""

import importlib
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from zoo.captioner import Captioner
from zoo.conversion import Converter, without_prefix
from zoo.errors import ZooError

_FAMILIES = {
    "expansionnet:CONVERTER": "expansionnet_v1 expansionnet_v2",
    "grid:CONVERTER": "dlct get rstnet",
    "grid:GRIT": "grit",
    "grid:M2": "m2",
    "grid:PURET": "puret",
    "recurrent:AOA": "aoanet image_transformer",
    "recurrent:CONVERTER": "adaptive_attention att2all att2in show_tell updown",
    "recurrent:GCN_LSTM": "gcn_lstm",
    "recurrent:SGAE": "sgae",
    "recurrent:TRANSFORMER": "transformer",
    "x_linear:X_LAN": "x_lan",
    "x_linear:X_TRANSFORMER": "x_transformer",
}
CONVERTERS = dict(sorted((family, place) for place, families in _FAMILIES.items() for family in families.split()))
"""Module of this package and name, by family, the part of a model's name before the slash."""


def converter_of(name: str) -> Converter:
    """The converter of a registered model's released weights; ZooError if there is none."""
    family = name.split("/")[0]
    if family not in CONVERTERS:
        known = ", ".join(sorted(CONVERTERS))
        raise ZooError(f"there is no converter for released weights of {name!r}", f"there are converters for {known}")
    module, _, attribute = CONVERTERS[family].partition(":")
    found: Converter = getattr(importlib.import_module(f"zoo.weights.{module}"), attribute)
    return found


def from_official(name: str, state_dict: Mapping[str, Tensor], **sizes: Any) -> Captioner:
    """Build a registered model with the authors' weights, in their floating-point type, float32 at least.

    Args:
        name: a registered model, a variant too.
        state_dict: the tensors of a checkpoint under the authors' names; see `read_checkpoint`.
        sizes: arguments of `create_model` that shapes do not determine, such as `n_heads`, if they differ from the
            preset's; see the converter.

    Raises:
        ZooError: there is no converter, or some tensors are missing, unknown or of another shape, which are all named.
    """
    return converter_of(name).build(name, state_dict, **sizes)


def read_sizes(name: str, state_dict: Mapping[str, Tensor]) -> dict[str, Any]:
    """The arguments of `create_model` that the shapes of the authors' tensors determine."""
    return converter_of(name).sizes(without_prefix(state_dict))
