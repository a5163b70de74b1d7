"""Weights of PureT (https://github.com/232525/PureT, no licence stated).

`puret` leaves the backbone of the checkpoint out, `puret/end-to-end` has it. Number 0 is begin, end and padding;
embedding and logits have V + 1 rows. Shapes determine neither `shift` nor the backbone, and `grid` only where the masks
of shifted windows are in the checkpoint.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from zoo.weights.converter import Converter, Tensors

_FUSION = re.compile(r"decoder_layers\.\d+\.fusion\.linear\.weight")
_TABLE = "encoder.layers.0.encoder_attn.relative_position_bias_table"
_SHIFTED = "encoder.layers.1.attn_mask"


class _PureT(Converter):
    def tensors(self, official: Mapping[str, Tensor]) -> Tensors:
        """See `Converter.tensors`; a fusion has its vector before the word."""
        return {
            name: torch.cat(tensor.chunk(2, 1)[::-1], 1) if _FUSION.fullmatch(name) else tensor
            for name, tensor in super().tensors(official).items()
        }

    def sizes(self, official: Mapping[str, Tensor]) -> dict[str, Any]:
        sizes = super().sizes(official)
        sizes["window"] = (math.isqrt(sizes["window"]) + 1) // 2
        if _SHIFTED in official:
            sizes["grid"] = sizes["window"] * math.isqrt(official[_SHIFTED].shape[0])
        return sizes


CONVERTER = _PureT(
    what="PureT",
    parts=(
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
    ),
    unused=r"^backbone\.|relative_position_index$|attn_mask$",
    where={
        "vocab_size": ("decoder.generator.weight", 0),
        "visual_dim": ("att_embed.0.weight", 1),
        "d_model": ("decoder.generator.weight", 1),
        "d_ff": ("decoder.layers.0.ff_layer.fc1.weight", 0),
        "max_len": ("decoder.pos_embed.weight", 0),
        "n_heads": (_TABLE, 1),
        "window": (_TABLE, 0),
    },
    stacks={"n_encoder_layers": "encoder.layers", "n_decoder_layers": "decoder.layers"},
    padded=True,
    shared_number=("decoder.word_embed.weight", "decoder.generator"),
    backbone="backbone.",
    hint="grid=..., shift=... and the backbone's options must be those of the training",
)
