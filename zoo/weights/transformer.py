"""Weights of `transformer` in https://github.com/ruotianluo/ImageCaptioning.pytorch (MIT)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from zoo.captioner import Captioner
from zoo.weights.fitting import build_fitting, count_layers, sizes_of_shapes

_PARTS = (
    (r"^att_embed\.0\b", "input"),
    (r"^model\.(en|de)coder\.layers\b", r"\1coder_layers"),
    (r"^model\.(en|de)coder\.norm\b", r"\1coder_output.norm"),
    (r"^model\.tgt_embed\.0\.lut\b", "embedding.words"),
    (r"^model\.generator\.proj\b", "vocabulary"),
    (r"\bself_attn\b", "mixer"),
    (r"\bsrc_attn\b", "cross_attention"),
    (r"\blinears\.0\b", "query"),
    (r"\blinears\.1\b", "key"),
    (r"\blinears\.2\b", "value"),
    (r"\blinears\.3\b", "output"),
    (r"\bw_1\b", "inner"),
    (r"\bw_2\b", "outer"),
    (r"\bsublayer\.0\.norm\b", "mixer_norm"),
    (r"^(decoder_layers\.\d+)\.sublayer\.1\.norm\b", r"\1.cross_norm"),
    (r"\bsublayer\.[12]\.norm\b", "feed_forward_norm"),
    (r"\ba_2\b", "gain"),
    (r"\bb_2\b", "shift"),
)
_COMPUTED = "model.tgt_embed.1.pe"


def zoo_name(official: str) -> str:
    """The zoo's name of a parameter, given the authors' name of it in a whole model."""
    for pattern, own in _PARTS:
        official = re.sub(pattern, own, official)
    return official


def from_official(name: str, state_dict: Mapping[str, Tensor], **sizes: Any) -> Captioner:
    """See `zoo.weights.from_official`. Shapes do not determine `n_heads` and `max_len`."""
    names = {zoo_name(key): key for key in state_dict if key != _COMPUTED}
    hint = "n_heads=... must be that of the training, and the model without batch normalisation"
    return build_fitting(name, state_dict, names, {**read_sizes(state_dict), **sizes}, hint)


def read_sizes(official: Mapping[str, Tensor]) -> dict[str, Any]:
    """The arguments of `create_model` that shapes give; ZooError if this is not a state dict of the transformer."""
    where = {
        "vocab_size": ("model.generator.proj.weight", 0),
        "visual_dim": ("att_embed.0.weight", 1),
        "d_model": ("model.generator.proj.weight", 1),
        "d_ff": ("model.encoder.layers.0.feed_forward.w_1.weight", 0),
    }
    sizes: dict[str, Any] = sizes_of_shapes(official, where, "ImageCaptioning.pytorch's transformer")
    for stack in ("encoder", "decoder"):
        sizes[f"n_{stack}_layers"] = count_layers(official, f"model.{stack}.layers")
    return sizes
