"""Weights of GRIT (https://github.com/davidnvq/grit, headers: Creative Commons Attribution).

They were trained on regions as its detector gives them, and with a table of positions that is random numbers, so the
model is created with `quirks` and without `embed_regions`. The detector's tensors, and those of a gate that the
released code never uses, are left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from zoo.captioner import Captioner
from zoo.errors import ZooError
from zoo.registry import default_arguments
from zoo.weights.fitting import build_fitting, count_layers, sizes_of_shapes

_PARTS = (
    (r"^grid_net\.(fc|layer_norm)\b", lambda found: f"grid_input.{'linear' if found[1] == 'fc' else 'norm'}"),
    (r"^grid_net\.layers\b", "encoder_layers"),
    (r"^cap_generator\.fc\b", "vocabulary"),
    (r"^cap_generator\.word_emb\b", "embedding.words"),
    (r"^cap_generator\.pos_emb\.weight\b", "embedding.positions.table"),
    (r"^cap_generator\.layers\b", "decoder_layers"),
    (r"\b(?:self_att|mhatt)\b", "mixer"),
    (r"\bvis_att1\b", "grid"),
    (r"\bvis_att2?\b", "cross"),
    (r"\bpwff\b", "feed_forward"),
    (r"\b(mixer|grid|cross|feed_forward)\.layer_norm\b", r"\1_norm"),
    (r"\bmixer\.attention\b", "mixer"),
    (r"\b(grid|cross)\.attention\b", r"\1_attention"),
    (r"\bfc_alpha1\b", "gates.0"),
    (r"\bfc_q\b", "query"),
    (r"\bfc_k\b", "key"),
    (r"\bfc_v\b", "value"),
    (r"\bfc_o\b", "output"),
    (r"\bfc1\b", "inner"),
    (r"\bfc2\b", "outer"),
)
_UNUSED = re.compile(r"^detector\.|\brunning_|\bfc_alpha2\b|\bm_[kv]\b")
"""The detector, states of decoding, a gate and memory slots that are never used."""
_FIRST = "cap_generator.layers.0."


def zoo_name(official: str) -> str:
    """The zoo's name of a parameter, given the authors' name of it in a whole model."""
    for pattern, own in _PARTS:
        official = re.sub(pattern, own, official)
    return official


def from_official(name: str, state_dict: Mapping[str, Tensor], **sizes: Any) -> Captioner:
    """See `zoo.weights.from_official`. Shapes do not give `n_heads`; names give the kind of heads."""
    official = without_prefix(state_dict)
    sizes = {**read_sizes(official), **sizes}
    own = default_arguments(name)["heads"]
    if sizes["heads"] != own:
        fitting = "grit" if sizes["heads"] == "parallel" else f"grit/{sizes['heads']}"
        raise ZooError(f"these are weights of {sizes['heads']} heads, and {name} has {own} ones", f"choose {fitting}")
    names = {zoo_name(key): key for key in official if not _UNUSED.search(key)}
    return build_fitting(name, official, names, sizes, "n_heads=... must be that of the training")


def read_sizes(official: Mapping[str, Tensor]) -> dict[str, Any]:
    """The arguments of `create_model` for these weights; ZooError if this is not a state dict of the model."""
    official = without_prefix(official)
    where = {
        "vocab_size": ("cap_generator.fc.weight", 0),
        "visual_dim": ("cap_generator.fc.weight", 1),
        "grid_dim": ("grid_net.fc.weight", 1),
        "d_model": ("grid_net.fc.weight", 0),
        "d_ff": (f"{_FIRST}pwff.fc1.weight", 0),
        "max_len": ("cap_generator.pos_emb.weight", 0),
    }
    sizes: dict[str, Any] = sizes_of_shapes(official, where, "GRIT")
    gated, joined = (any(key.startswith(_FIRST + part) for key in official) for part in ("fc_alpha1.", "vis_att."))
    return {
        **sizes,
        "max_len": sizes["max_len"] - 1,
        "n_encoder_layers": count_layers(official, "grid_net.layers"),
        "n_decoder_layers": count_layers(official, "cap_generator.layers"),
        "heads": "concatenated" if joined else "parallel" if gated else "sequential",
        "embed_regions": False,
        "quirks": True,
    }


def without_prefix(official: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors by their names without `module.`, which a model that was trained on several devices has before all."""
    return {key.removeprefix("module."): tensor for key, tensor in official.items()}
