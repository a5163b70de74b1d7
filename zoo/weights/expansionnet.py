"""Weights of ExpansionNet v1 and v2 as released by their authors (https://github.com/jchenghu/ExpansionNet_v2, MIT)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from zoo.captioner import Captioner
from zoo.registry import model_card
from zoo.weights.fitting import build_fitting, count_layers, sizes_of_shapes
from zoo.weights.swin import timm_name

_BACKBONE = "swin_transf."

_SEGMENTS = {
    "input_linear": "input",
    "encoders": "encoder_layers",
    "decoders": "decoder_layers",
    "stc_exp": "mixer",
    "dyn_exp": "mixer",
    "cond_embed": "condition",
    "key_embed": "key",
    "key_linear": "key",
    "class_a_embed": "streams.value_a",
    "class_b_embed": "streams.value_b",
    "selector_embed": "streams.selector",
    "mha": "cross_attention",
    "Wq": "query",
    "Wk": "key",
    "Wv": "value",
    "out_linear": "output",
    "ff": "feed_forward",
    "linear_1": "inner",
    "linear_2": "outer",
    "norm_1": "mixer_norm",
    "norm_3": "feed_forward_norm",
    "out_embedder": "embedding",
    "embed": "words",
    "pos_encoder": "embedding.positions",
    "enc_reduce_group": "encoder_output.reduce",
    "enc_reduce_norm": "encoder_output.norm",
    "dec_reduce_group": "decoder_output.reduce",
    "dec_reduce_norm": "decoder_output.norm",
    "vocab_linear": "vocabulary",
}


def zoo_name(official: str) -> str:
    """The zoo's name of a parameter, given the authors' name of it in a whole model."""
    second_norm = "cross_norm" if official.startswith("decoders") else "feed_forward_norm"
    segments = {**_SEGMENTS, "norm_2": second_norm}
    name = ".".join(segments.get(segment, segment) for segment in official.split("."))
    return name.replace("query_exp_vectors.weight", "queries").replace("bias_exp_vectors.weight", "biases")


def from_official(name: str, state_dict: Mapping[str, Tensor], **sizes: Any) -> Captioner:
    """Build a registered ExpansionNet with the authors' weights, in their floating-point type.

    Args:
        name: a model of static encoder and dynamic decoder. `expansionnet_v2` uses the captioner only and ignores a
            backbone's tensors (`swin_transf.*`); `expansionnet_v2/end-to-end` uses both.
        state_dict: a checkpoint's `model_state_dict`; see `zoo.weights.read_checkpoint`.
        sizes: arguments of `create_model` that shapes do not determine: `n_heads`, `static_lengths`, `backbone` and
            `backbone_options`, if they differ from the preset's. The others are read off the shapes.

    Raises:
        ZooError: names every tensor that is missing, unknown or of another shape.
    """
    body = {key: tensor for key, tensor in state_dict.items() if not key.startswith(_BACKBONE)}
    names = _own_names(state_dict, with_backbone=model_card(name).visual == "pixels")
    hint = "n_heads=..., static_lengths=(...) and the backbone's options must be those of the training"
    return build_fitting(name, state_dict, names, {**read_sizes(body), **sizes}, hint)


def _own_names(state_dict: Mapping[str, Tensor], *, with_backbone: bool) -> dict[str, str]:
    """The authors' name of every tensor of the model, by the zoo's name."""
    place = "body." if with_backbone else ""
    names = {}
    for key in state_dict:
        if not key.startswith(_BACKBONE):
            names[place + zoo_name(key)] = key
        elif with_backbone and (own := timm_name(key.removeprefix(_BACKBONE))) is not None:
            names["backbone." + own] = key
    return names


def read_sizes(official: Mapping[str, Tensor]) -> dict[str, int]:
    """The arguments of `create_model` that shapes determine; ZooError if this is not a state dict of ExpansionNet."""
    where = {
        "vocab_size": ("vocab_linear.weight", 0),
        "visual_dim": ("input_linear.weight", 1),
        "d_model": ("input_linear.weight", 0),
        "d_ff": ("decoders.0.ff.linear_1.weight", 0),
        "max_len": ("pos_encoder.weight", 0),
        "dynamic_length": ("decoders.0.dyn_exp.query_exp_vectors.weight", 0),
    }
    sizes = sizes_of_shapes(official, where, "ExpansionNet")
    for size, stack in (("n_encoder_layers", "encoders"), ("n_decoder_layers", "decoders")):
        sizes[size] = count_layers(official, stack)
    return sizes
