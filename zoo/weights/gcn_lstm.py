"""Weights of X-modaler's GCN-LSTM (https://github.com/YehLi/xmodaler, Apache-2.0).

Number 0 is begin, end and padding. Torch orders an LSTM's gates input, forget, candidate, output; the zoo has the
candidate last. Labels of edges are those of a semantic graph, which comes with the data: see `GCNLSTM.encode_graph`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from zoo.captioner import Captioner
from zoo.weights.fitting import build_fitting, sizes_of_shapes
from zoo.weights.recurrent import candidate_last

_PARTS = (
    (r"^token_embed\.embeddings\b", "embedding.0"),
    (r"^encoder\.gate_bias$", "convolution.label_gate"),
    (r"^encoder\.bias$", "convolution.label_bias"),
    (r"^encoder\.gcn_loop", "convolution.loop"),
    (r"^encoder\.gcn_sub", "convolution.forth"),
    (r"^encoder\.gcn_obj", "convolution.back"),
    (r"^decoder\.p_att_feats\b", "attention.key"),
    (r"^decoder\.att\.w_h\b", "attention.query"),
    (r"^decoder\.att\.w_alpha\b", "attention.score"),
    (r"^predictor\.logits\b", "vocabulary"),
)
_PIECES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
_LSTMS = [f"decoder.lstm{lstm}.{piece}" for lstm in (1, 2) for piece in _PIECES]


def zoo_name(official: str) -> str:
    """The zoo's name of a parameter, given the authors' name of it; those of both LSTMs have other shapes."""
    for pattern, own in _PARTS:
        official = re.sub(pattern, own, official)
    return official


def zoo_tensors(official: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The authors' tensors, or their gradients, under the zoo's names and in its layout; unknown names are kept.

    Their attention LSTM reads [language state; image; word].
    """
    found = {zoo_name(key): tensor for key, tensor in official.items() if key not in _LSTMS}
    first_in, first_past, first_bias, first_past_bias, second_in, second_past, second_bias, second_past_bias = (
        candidate_last(official[key]) for key in _LSTMS
    )
    width = first_past.shape[1]
    words = official["token_embed.embeddings.weight"].shape[1]
    return found | {
        "lstm.input.weight": first_in[:, -words:],
        "lstm.input.bias": first_bias,
        "lstm.recurrent.weight": torch.cat((first_in[:, :width], first_past), 1),
        "lstm.recurrent.bias": first_past_bias,
        "image_gates.weight": first_in[:, width:-words],
        "language_lstm.input.weight": second_in,
        "language_lstm.input.bias": second_bias,
        "language_lstm.recurrent.weight": second_past,
        "language_lstm.recurrent.bias": second_past_bias,
    }


def from_official(name: str, state_dict: Mapping[str, Tensor], **sizes: Any) -> Captioner:
    """See `zoo.weights.from_official`; shapes determine everything but `max_len`.

    The labels of edges are given (`GCNLSTM.encode_graph`) unless `graph` says otherwise; `quirks=False` masks padding.
    """
    sizes = {**read_sizes(state_dict), **sizes}
    tensors = zoo_tensors(state_dict)
    return build_fitting(name, tensors, {own: own for own in tensors}, sizes, "the model must be the checkpoint's")


def read_sizes(official: Mapping[str, Tensor]) -> dict[str, Any]:
    """The arguments of `create_model` for these weights; ZooError if this is not a state dict of the model."""
    where = {
        "vocab_size": ("predictor.logits.weight", 0),
        "visual_dim": ("encoder.gcn_loop.weight", 1),
        "d_model": ("predictor.logits.weight", 1),
        "d_embedding": ("token_embed.embeddings.weight", 1),
        "d_attention": ("decoder.p_att_feats.weight", 0),
        "n_labels": ("encoder.bias", 0),
    }
    sizes = sizes_of_shapes(official, where, "X-modaler's GCN-LSTM", needed=_LSTMS)
    return {**sizes, "graph": "given", "quirks": True}
