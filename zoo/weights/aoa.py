"""Weights of AoANet (https://github.com/husthuaan/AoANet, MIT) and of the Image Transformer, whose code builds on it.

The latter's is https://github.com/wtliao/ImageTransformer (no licence stated). Both use number 0 for begin, end and
padding, and the unknown word is the last of the V others: embedding and logits have V + 1 rows. Shapes do not determine
`n_heads` and, for Image Transformer, `graph`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from zoo.weights.converter import Converter, Tensors, lstm_names, zoo_lstm

_LSTM = "core.att_lstm"


class _AoA(Converter):
    def tensors(self, official: Mapping[str, Tensor]) -> Tensors:
        words = official[f"{_LSTM}.weight_ih"].shape[1] - official[f"{_LSTM}.weight_hh"].shape[1]
        return super().tensors(official) | zoo_lstm(official, _LSTM, "lstm", words)

    def sizes(self, official: Mapping[str, Tensor]) -> dict[str, Any]:
        return {size: value for size, value in super().sizes(official).items() if value}  # there may be no refiner


def _memory(found: re.Match[str]) -> str:
    return f"memories.{int(found[1]) - 1}"


CONVERTER = _AoA(
    what="AoANet or the Image Transformer",
    parts=(
        (r"self_attn\.(q_linears|linears\.0)\b", "mixer.query"),
        (r"self_attn\.linears\.1\b", "mixer.key"),
        (r"self_attn\.linears\.2\b", "mixer.value"),
        (r"self_attn\.k_linears\b", "mixer.keys"),
        (r"self_attn\.v_linears\b", "mixer.values"),
        (r"self_attn\.aoa_layer\.0\b", "mixer.gate.mix"),
        (r"sublayer\.0\.norm\b", "mixer_norm"),
        (r"\ba_2\b", "gain"),
        (r"\bb_2\b", "shift"),
        (r"^embed\.", "embedding."),
        (r"^att_embed\.", "region_embedding."),
        (r"^ctx2att\b", "memories.0"),
        (r"^core\.implicit(\d+)\b", _memory),
        (r"^core\.att2ctx\.0\b", "gate.mix"),
        (r"^core\.attention\.norm\b", "query_norm"),
        (r"^core\.attention\.linears\.0\b", "query"),
        (r"^logit\b", "vocabulary"),
    ),
    unused=r"^core\.att_lstm\.",
    where={
        "vocab_size": ("logit.weight", 0),
        "visual_dim": ("att_embed.0.weight", 1),
        "d_model": ("att_embed.0.weight", 0),
        "d_word": ("embed.0.weight", 1),
    },
    stacks={"n_encoder_layers": "refiner.layers"},
    needed=lstm_names(_LSTM),
    hint="n_heads=... must be that of the training, and the variant that of the checkpoint",
)
