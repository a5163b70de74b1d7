"""Names of tensors that the meshed-memory transformer's code shares with code that builds on it.

The code is https://github.com/aimagelab/meshed-memory-transformer; GET, DLCT, RSTNet and GRIT build on it. Weights were
trained with the faults of the released code, so their converters set `quirks`; `quirks=False` uses the mask of the
input. Shapes do not determine `n_heads`.
"""

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from zoo.converter import Tensors

NAMES = (
    (r"^decoder\.fc\b", "vocabulary"),
    (r"^decoder\.word_emb\b", "embedding.words"),
    (r"^decoder\.pos_emb\.weight\b", "embedding.positions.table"),
    (r"^(en|de)coder\.layers\b", r"\1coder_layers"),
    (r"\bfc_q\b", "query"),
    (r"\bfc_k\b", "key"),
    (r"\bfc_v\b", "value"),
    (r"\bfc1\b", "inner"),
    (r"\bfc2\b", "outer"),
)
"""Names in all of them; see `zoo.converter.Converter.renames`."""
BRANCHES = (
    (r"\b(?:self_att|mhatt)\b", "mixer"),
    (r"\benc_att\b", "cross"),
    (r"\bpwff\b", "feed_forward"),
    (r"\b(mixer|grid|cross|feed_forward)\.layer_norm\b", r"\1_norm"),
    (r"\bmixer\.attention\b", "mixer"),
    (r"\b(grid|cross)\.attention\b", r"\1_attention"),
    (r"\bfc_o\b", "output"),
)
"""Names within layers with one residual connection per branch."""
DOUBLY_RESIDUAL = (
    (r"\b(?:self_att|mhatt)\.(?:attention\.)?", "mixer."),
    (r"\benc_att\.(?:attention\.)?", "cross_attention."),
    (r"\b(mixer|cross_attention)\.layer_norm\b", r"\1.gate.norm"),
    (r"\blnorm1?\b", "mixer_norm"),
    (r"\blnorm2\b", "cross_norm"),
    (r"\bpwff\.layer_norm\b", "feed_forward_norm"),
    (r"\bpwff\b", "feed_forward"),
    (r"\bfc_o\b(?:\.0\b)?", "gate.output"),
)
"""Names within layers whose attention has another residual connection (`zoo.models.doubly_residual`)."""
SIZES = {
    "vocab_size": ("decoder.fc.weight", 0),
    "d_model": ("decoder.fc.weight", 1),
    "d_ff": ("decoder.layers.0.pwff.fc1.weight", 0),
    "max_len": ("decoder.pos_emb.weight", 0),
}
STACKS = {"n_encoder_layers": "encoder.layers", "n_decoder_layers": "decoder.layers"}
STATES = r"\brunning_"
"""States of decoding, which their checkpoints also contain."""
HINT = "n_heads=... must be that of the training"
_PAIR_WEIGHTS = re.compile(r"encoder\.WGs\.(\d+)\.(weight|bias)")


def join_pair_weights(official: Mapping[str, Tensor]) -> Tensors:
    """Join the layers for pairs of boxes, of which RSTNet and DLCT have one per head, to one layer."""
    heads: dict[str, dict[int, Tensor]] = {}
    tensors = {}
    for key, tensor in official.items():
        match = _PAIR_WEIGHTS.fullmatch(key)
        if match:
            heads.setdefault(match[2], {})[int(match[1])] = tensor
        else:
            tensors[key] = tensor
    for part, by_head in heads.items():
        tensors[f"pair_weights.linear.{part}"] = torch.cat([by_head[head] for head in sorted(by_head)])
    return tensors
