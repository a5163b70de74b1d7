"""Weights of AoANet (https://github.com/husthuaan/AoANet, MIT) and of the Image Transformer, whose code builds on it.

The latter's is https://github.com/wtliao/ImageTransformer (no licence stated).

Both have one number for begin, end and padding (0), and the unknown word is the last of the V others: embedding and
logits have V + 1 rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from zoo.captioner import Captioner
from zoo.weights.fitting import build_fitting, count_layers, sizes_of_shapes

_SUBLAYER = (
    (r"self_attn\.(q_linears|linears\.0)\b", "mixer.query"),
    (r"self_attn\.linears\.1\b", "mixer.key"),
    (r"self_attn\.linears\.2\b", "mixer.value"),
    (r"self_attn\.k_linears\b", "mixer.keys"),
    (r"self_attn\.v_linears\b", "mixer.values"),
    (r"self_attn\.aoa_layer\.0\b", "gate.mix"),
    (r"sublayer\.0\.norm\b", "norm"),
    (r"\ba_2\b", "gain"),
    (r"\bb_2\b", "shift"),
)
_WHOLE = (
    (r"^embed\.0\b", "decoder.words"),
    (r"^att_embed\.0\b", "encoder.input"),
    (r"^refiner\b", "encoder.refiner"),
    (r"^ctx2att\b", "decoder.memories.0"),
    (r"^core\.implicit(\d+)\b", lambda found: f"decoder.memories.{int(found[1]) - 1}"),
    (r"^core\.att_lstm\b", "decoder.lstm"),
    (r"^core\.att2ctx\.0\b", "decoder.gate.mix"),
    (r"^core\.attention\.norm\b", "decoder.norm"),
    (r"^core\.attention\.linears\.0\b", "decoder.query"),
    (r"^logit\b", "decoder.vocabulary"),
)


def zoo_name(official: str) -> str:
    """The zoo's name of a parameter, given the authors' name of it in a whole model."""
    for pattern, own in (*_SUBLAYER, *_WHOLE):
        official = re.sub(pattern, own, official)
    return official


def from_official(name: str, state_dict: Mapping[str, Tensor], **sizes: Any) -> Captioner:
    """See `zoo.weights.from_official`. Shapes do not tell `n_heads` and, of an Image Transformer, `graph`."""
    names = {zoo_name(key): key for key in state_dict}
    hint = "n_heads=... must be that of the training, and the variant that of the checkpoint"
    return build_fitting(name, state_dict, names, {**read_sizes(state_dict), **sizes}, hint)


def read_sizes(official: Mapping[str, Tensor]) -> dict[str, Any]:
    """The arguments of `create_model` that shapes tell; ZooError where this is no state dict of the family."""
    where = {
        "vocab_size": ("logit.weight", 0),
        "visual_dim": ("att_embed.0.weight", 1),
        "d_model": ("att_embed.0.weight", 0),
        "d_word": ("embed.0.weight", 1),
    }
    sizes: dict[str, Any] = sizes_of_shapes(official, where, "AoANet or the Image Transformer")
    if layers := count_layers(official, "refiner.layers"):
        sizes["n_encoder_layers"] = layers
    return sizes
