"""Weights of AoANet (https://github.com/husthuaan/AoANet, MIT) and of the Image Transformer, whose code builds on it.

The latter's is https://github.com/wtliao/ImageTransformer (no licence stated).

Both use number 0 for begin, end and padding, and the unknown word is the last of the V others: embedding and logits
have V + 1 rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from zoo.captioner import Captioner
from zoo.weights.fitting import build_fitting, count_layers, sizes_of_shapes
from zoo.weights.recurrent import candidate_last

_SUBLAYER = (
    (r"self_attn\.(q_linears|linears\.0)\b", "mixer.query"),
    (r"self_attn\.linears\.1\b", "mixer.key"),
    (r"self_attn\.linears\.2\b", "mixer.value"),
    (r"self_attn\.k_linears\b", "mixer.keys"),
    (r"self_attn\.v_linears\b", "mixer.values"),
    (r"self_attn\.aoa_layer\.0\b", "mixer.gate.mix"),
    (r"sublayer\.0\.norm\b", "mixer_norm"),
    (r"\ba_2\b", "gain"),
    (r"\bb_2\b", "shift"),
)
_WHOLE = (
    (r"^embed\.", "embedding."),
    (r"^att_embed\.", "region_embedding."),
    (r"^ctx2att\b", "memories.0"),
    (r"^core\.implicit(\d+)\b", lambda found: f"memories.{int(found[1]) - 1}"),
    (r"^core\.att2ctx\.0\b", "gate.mix"),
    (r"^core\.attention\.norm\b", "query_norm"),
    (r"^core\.attention\.linears\.0\b", "query"),
    (r"^logit\b", "vocabulary"),
)


_LSTM = tuple(f"core.att_lstm.{part}" for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))


def zoo_name(official: str) -> str:
    """The zoo's name of a parameter, given the authors' name of it in a whole model; the LSTM's have other shapes."""
    for pattern, own in (*_SUBLAYER, *_WHOLE):
        official = re.sub(pattern, own, official)
    return official


def zoo_lstm(official: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The LSTM's tensors, or their gradients, split into the weights of the word, and of context and past state."""
    weight_input, weight_past, bias_input, bias_past = (candidate_last(official[key]) for key in _LSTM)
    d_word = weight_input.shape[1] - weight_past.shape[1]
    return {
        "lstm.input.weight": weight_input[:, :d_word],
        "lstm.input.bias": bias_input,
        "lstm.recurrent.weight": torch.cat((weight_input[:, d_word:], weight_past), 1),
        "lstm.recurrent.bias": bias_past,
    }


def from_official(name: str, state_dict: Mapping[str, Tensor], **sizes: Any) -> Captioner:
    """See `zoo.weights.from_official`. Shapes do not determine `n_heads` and, for Image Transformer, `graph`."""
    sizes = {**read_sizes(state_dict), **sizes}
    lstm = zoo_lstm(state_dict)
    names = {zoo_name(key): key for key in state_dict if key not in _LSTM} | {key: key for key in lstm}
    hint = "n_heads=... must be that of the training, and the variant that of the checkpoint"
    return build_fitting(name, {**state_dict, **lstm}, names, sizes, hint)


def read_sizes(official: Mapping[str, Tensor]) -> dict[str, Any]:
    """The arguments of `create_model` that shapes determine; ZooError if this is not a state dict of the family."""
    where = {
        "vocab_size": ("logit.weight", 0),
        "visual_dim": ("att_embed.0.weight", 1),
        "d_model": ("att_embed.0.weight", 0),
        "d_word": ("embed.0.weight", 1),
    }
    sizes: dict[str, Any] = sizes_of_shapes(official, where, "AoANet or the Image Transformer", needed=_LSTM)
    if layers := count_layers(official, "refiner.layers"):
        sizes["n_encoder_layers"] = layers
    return sizes
