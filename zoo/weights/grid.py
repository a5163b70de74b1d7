"""Weights of GET, RSTNet and DLCT (https://github.com/luo3300612/image-captioning-DLCT and
https://github.com/zhangxuying1004/RSTNet, both BSD-3-Clause).

They were trained with the faults of the released code, so models are created with `quirks`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from zoo.captioner import Captioner
from zoo.weights.fitting import build_fitting, count_layers, sizes_of_shapes
from zoo.weights.recurrent import candidate_last

_PARTS = (
    (r"^encoder\.fc\b", "input.linear"),
    (r"^encoder\.layer_norm\b", "input.norm"),
    (r"^encoder\.rnn\.(weight|bias)_ih_l0\b", r"fusion.input.\1"),
    (r"^encoder\.rnn\.(weight|bias)_hh_l0\b", r"fusion.recurrent.\1"),
    (r"^decoder\.fc\b", "vocabulary"),
    (r"^decoder\.word_emb\b", "embedding.words"),
    (r"^decoder\.pos_emb\.weight\b", "embedding.positions.table"),
    (r"^(en|de)coder\.layers\b", r"\1coder_layers"),
    (r"\b(?:self_att|mhatt)\.(?:attention\.)?", "mixer."),
    (r"\benc_att\.(?:attention\.)?", "cross_attention."),
    (r"\b(mixer|cross_attention)\.layer_norm\b", r"\1.gate.norm"),
    (r"\blnorm1?\b", "mixer_norm"),
    (r"\blnorm2\b", "cross_norm"),
    (r"\bpwff\.layer_norm\b", "feed_forward_norm"),
    (r"\bpwff\b", "feed_forward"),
    (r"\bfc_q\b", "query"),
    (r"\bfc_k\b", "key"),
    (r"\bfc_v\b", "value"),
    (r"\bfc_o\b(?:\.0\b)?", "gate.output"),
    (r"\bfc1\b", "inner"),
    (r"\bfc2\b", "outer"),
)
_DECODING_STATE = re.compile(r"\brunning_")


def zoo_name(official: str) -> str:
    """The zoo's name of a parameter, given the authors' name of it in a whole model."""
    for pattern, own in _PARTS:
        official = re.sub(pattern, own, official)
    return official


def zoo_tensors(official: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The authors' tensors, or their gradients, under the zoo's names and in its layout; unknown names are kept."""
    own = {zoo_name(key): tensor for key, tensor in official.items() if not _DECODING_STATE.search(key)}
    return {name: candidate_last(tensor) if name.startswith("fusion.") else tensor for name, tensor in own.items()}


def from_official(name: str, state_dict: Mapping[str, Tensor], **sizes: Any) -> Captioner:
    """See `zoo.weights.from_official`. Shapes do not give `n_heads`; `quirks=False` masks padded regions anyway."""
    tensors = zoo_tensors(state_dict)
    hint = "n_heads=... must be that of the training"
    return build_fitting(name, tensors, {own: own for own in tensors}, {**read_sizes(state_dict), **sizes}, hint)


def read_sizes(official: Mapping[str, Tensor]) -> dict[str, Any]:
    """The arguments of `create_model` for these weights; ZooError if this is not a state dict of such a model."""
    where = {
        "vocab_size": ("decoder.fc.weight", 0),
        "visual_dim": ("encoder.fc.weight", 1),
        "d_model": ("encoder.fc.weight", 0),
        "d_ff": ("decoder.layers.0.pwff.fc1.weight", 0),
        "max_len": ("decoder.pos_emb.weight", 0),
    }
    sizes: dict[str, Any] = sizes_of_shapes(official, where, "GET, RSTNet or DLCT")
    for stack in ("encoder", "decoder"):
        sizes[f"n_{stack}_layers"] = count_layers(official, f"{stack}.layers")
    return {**sizes, "max_len": sizes["max_len"] - 1, "quirks": True}  # row 0 is that of padding
