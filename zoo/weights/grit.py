"""Weights of GRIT (https://github.com/davidnvq/grit, headers: Creative Commons Attribution).

They were trained on regions as its detector gives them, and with a table of positions that is random numbers, so the
model is created with `quirks` and without `embed_regions`. Shapes do not give `n_heads`; names give the kind of heads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from zoo.errors import ZooError
from zoo.registry import default_arguments
from zoo.weights.converter import Converter, Tensors

_FIRST = "cap_generator.layers.0."


class _GRIT(Converter):
    def selected(self, name: str, official: Mapping[str, Tensor], sizes: Mapping[str, Any]) -> Tensors:
        heads, own = sizes["heads"], default_arguments(name)["heads"]
        if heads != own:
            fitting = "grit" if heads == "parallel" else f"grit/{heads}"
            raise ZooError(f"these are weights of {heads} heads, and {name} has {own} ones", f"choose {fitting}")
        return super().selected(name, official, sizes)

    def sizes(self, official: Mapping[str, Tensor]) -> dict[str, Any]:
        gated, joined = (any(key.startswith(_FIRST + part) for key in official) for part in ("fc_alpha1.", "vis_att."))
        heads = "concatenated" if joined else "parallel" if gated else "sequential"
        return {**super().sizes(official), "heads": heads}


def _input(found: re.Match[str]) -> str:
    return f"grid_input.{'linear' if found[1] == 'fc' else 'norm'}"


CONVERTER = _GRIT(
    what="GRIT",
    parts=(
        (r"^grid_net\.(fc|layer_norm)\b", _input),
        (r"^grid_net\.layers\b", "encoder_layers"),
        (r"^cap_generator\.fc\b", "vocabulary"),
        (r"^cap_generator\.word_emb\b", "embedding.words"),
        (r"^cap_generator\.pos_emb\.weight\b", "embedding.positions.table"),
        (r"^cap_generator\.layers\b", "decoder_layers"),
        (r"\b(?:self_att|mhatt)\b", "mixer"),
        (r"\bvis_att1\b", "grid"),
        (r"\bvis_att2?\b", "cross"),
        (r"\bpwff\b", "feed_forward"),
        (r"\b(mixer|grid|cross|feed_forward)\.layer_norm\b", r"\1_norm"),
        (r"\bmixer\.attention\b", "mixer"),
        (r"\b(grid|cross)\.attention\b", r"\1_attention"),
        (r"\bfc_alpha1\b", "gates.0"),
        (r"\bfc_q\b", "query"),
        (r"\bfc_k\b", "key"),
        (r"\bfc_v\b", "value"),
        (r"\bfc_o\b", "output"),
        (r"\bfc1\b", "inner"),
        (r"\bfc2\b", "outer"),
    ),
    # The detector, states of decoding, a gate and memory slots that the released code never uses.
    unused=r"^detector\.|\brunning_|\bfc_alpha2\b|\bm_[kv]\b",
    where={
        "vocab_size": ("cap_generator.fc.weight", 0),
        "visual_dim": ("cap_generator.fc.weight", 1),
        "grid_dim": ("grid_net.fc.weight", 1),
        "d_model": ("grid_net.fc.weight", 0),
        "d_ff": (f"{_FIRST}pwff.fc1.weight", 0),
        "max_len": ("cap_generator.pos_emb.weight", 0),
    },
    stacks={"n_encoder_layers": "grid_net.layers", "n_decoder_layers": "cap_generator.layers"},
    fixed={"embed_regions": False, "quirks": True},
    padded=True,
    hint="n_heads=... must be that of the training",
)
