"""Weights of the meshed-memory transformer (https://github.com/aimagelab/meshed-memory-transformer, BSD-3-Clause).

They were trained with the faults of the released code, so the model is created with `quirks`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from zoo.captioner import Captioner
from zoo.weights.fitting import build_fitting, count_layers, sizes_of_shapes

_PARTS = (
    (r"^encoder\.fc\b", "input"),
    (r"^encoder\.layer_norm\b", "input_norm"),
    (r"^decoder\.fc\b", "vocabulary"),
    (r"^decoder\.word_emb\b", "embedding.words"),
    (r"^decoder\.pos_emb\.weight\b", "embedding.positions.table"),
    (r"^(en|de)coder\.layers\b", r"\1coder_layers"),
    (r"\bself_att\b|\bmhatt\b", "mixer"),
    (r"\benc_att\b", "cross"),
    (r"\bpwff\b", "feed_forward"),
    (r"\b(mixer|cross|feed_forward)\.layer_norm\b", r"\1_norm"),
    (r"\bcross\.attention\b", "cross_attention"),
    (r"\bmixer\.attention\b", "mixer"),
    (r"\bfc_alpha(\d+)\b", lambda found: f"gates.{int(found[1]) - 1}"),
    (r"\bfc_q\b", "query"),
    (r"\bfc_k\b", "key"),
    (r"\bfc_v\b", "value"),
    (r"\bfc_o\b", "output"),
    (r"\bfc1\b", "inner"),
    (r"\bfc2\b", "outer"),
    (r"\bm_k\b", "memory_keys"),
    (r"\bm_v\b", "memory_values"),
)
_DECODING_STATE = re.compile(r"\brunning_")


def zoo_name(official: str) -> str:
    """The zoo's name of a parameter, given the authors' name of it in a whole model."""
    for pattern, own in _PARTS:
        official = re.sub(pattern, own, official)
    return official


def from_official(name: str, state_dict: Mapping[str, Tensor], **sizes: Any) -> Captioner:
    """See `zoo.weights.from_official`. Shapes do not give `n_heads`; `quirks=False` masks padded regions anyway."""
    names = {zoo_name(key): key for key in state_dict if not _DECODING_STATE.search(key)}
    hint = "n_heads=... must be that of the training"
    return build_fitting(name, state_dict, names, {**read_sizes(state_dict), **sizes}, hint)


def read_sizes(official: Mapping[str, Tensor]) -> dict[str, Any]:
    """The arguments of `create_model` for these weights; ZooError if this is not a state dict of the model."""
    where = {
        "vocab_size": ("decoder.fc.weight", 0),
        "visual_dim": ("encoder.fc.weight", 1),
        "d_model": ("encoder.fc.weight", 0),
        "d_ff": ("encoder.layers.0.pwff.fc1.weight", 0),
        "memory_slots": ("encoder.layers.0.mhatt.attention.m_k", 1),
        "max_len": ("decoder.pos_emb.weight", 0),
    }
    sizes: dict[str, Any] = sizes_of_shapes(official, where, "the meshed-memory transformer")
    for stack in ("encoder", "decoder"):
        sizes[f"n_{stack}_layers"] = count_layers(official, f"{stack}.layers")
    return {**sizes, "max_len": sizes["max_len"] - 1, "quirks": True}  # row 0 is that of padding
