"""Weights of PureT (https://github.com/232525/PureT, no licence stated).

Number 0 is begin, end and padding; embedding and logits have V + 1 rows. The table of positions is a frozen parameter
there, with a row for padding.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from zoo.captioner import Captioner
from zoo.registry import model_card
from zoo.weights.fitting import build_fitting, count_layers, sizes_of_shapes
from zoo.weights.swin import timm_name
from zoo.weights.x_linear import without_prefix

_PARTS = (
    (r"^att_embed\b", "input"),
    (r"^decoder\.word_embed\b", "embedding.words"),
    (r"^decoder\.pos_embed\.weight\b", "embedding.positions.table"),
    (r"^decoder\.generator\b", "vocabulary"),
    (r"^encoder\.layers\.(\d+)\.layer_norm2\b", r"encoder_layers.\1.feed_forward_norm"),
    (r"^(en|de)coder\.layers\b", r"\1coder_layers"),
    (r"\bencoder_attn\b|\bword_attn\b", "mixer"),
    (r"\bcross_att\b", "cross_attention"),
    (r"\blayer_norm1\b", "mixer_norm"),
    (r"\blayer_norm2\b", "cross_norm"),
    (r"\blayer_norm3\b", "feed_forward_norm"),
    (r"\bfuse_layer\.0\b", "fusion.linear"),
    (r"\bfuse_layer_norm\b", "fusion.norm"),
    (r"\bff_layer\.fc1\b", "feed_forward.inner"),
    (r"\bff_layer\.fc2\b", "feed_forward.outer"),
    (r"\bq_linear\b", "query"),
    (r"\bk_linear\b", "key"),
    (r"\bv_linear\b", "value"),
    (r"\bo_linear\b", "output"),
    (r"\brelative_position_bias_table\b", "bias_table"),
)
_BACKBONE = "backbone."
_COMPUTED = ("relative_position_index", "attn_mask")
_FUSION = re.compile(r"decoder_layers\.\d+\.fusion\.linear\.weight")
_TABLE = "encoder.layers.0.encoder_attn.relative_position_bias_table"
_SHIFTED = "encoder.layers.1.attn_mask"


def zoo_name(official: str) -> str:
    """The zoo's name of a parameter, given the authors' name of it in the captioner."""
    for pattern, own in _PARTS:
        official = re.sub(pattern, own, official)
    return official


def zoo_tensors(official: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The captioner's tensors, or their gradients, under the zoo's names; a fusion has its vector before the word."""
    found = {
        zoo_name(key): tensor
        for key, tensor in official.items()
        if not key.startswith(_BACKBONE) and not key.endswith(_COMPUTED)
    }
    return {
        name: torch.cat(tensor.chunk(2, 1)[::-1], 1) if _FUSION.fullmatch(name) else tensor
        for name, tensor in found.items()
    }


def from_official(name: str, state_dict: Mapping[str, Tensor], **sizes: Any) -> Captioner:
    """Build `puret` without the backbone of the checkpoint, or `puret/end-to-end` with it.

    See `zoo.weights.from_official`. Shapes determine neither `shift` nor the backbone, and `grid` only where the masks
    of shifted windows are in the checkpoint.
    """
    official = without_prefix(state_dict)
    tensors = zoo_tensors(official)
    if model_card(name).visual == "pixels":
        tensors = {f"body.{own}": tensor for own, tensor in tensors.items()}
        for key, tensor in official.items():
            if key.startswith(_BACKBONE) and (own := timm_name(key.removeprefix(_BACKBONE))) is not None:
                tensors[_BACKBONE + own] = tensor
    hint = "grid=..., shift=... and the backbone's options must be those of the training"
    return build_fitting(name, tensors, {own: own for own in tensors}, {**read_sizes(official), **sizes}, hint)


def read_sizes(official: Mapping[str, Tensor]) -> dict[str, Any]:
    """The arguments of `create_model` that shapes determine; ZooError if this is not a state dict of PureT."""
    official = without_prefix(official)
    where = {
        "vocab_size": ("decoder.generator.weight", 0),
        "visual_dim": ("att_embed.0.weight", 1),
        "d_model": ("decoder.generator.weight", 1),
        "d_ff": ("decoder.layers.0.ff_layer.fc1.weight", 0),
        "max_len": ("decoder.pos_embed.weight", 0),
        "n_heads": (_TABLE, 1),
        "window": (_TABLE, 0),
    }
    sizes: dict[str, Any] = sizes_of_shapes(official, where, "PureT")
    sizes["max_len"] -= 1  # row 0 is that of padding
    sizes["window"] = (math.isqrt(sizes["window"]) + 1) // 2
    if _SHIFTED in official:
        sizes["grid"] = sizes["window"] * math.isqrt(official[_SHIFTED].shape[0])
    for stack in ("encoder", "decoder"):
        sizes[f"n_{stack}_layers"] = count_layers(official, f"{stack}.layers")
    return sizes
