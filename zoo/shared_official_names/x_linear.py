"""What weights of X-LAN and X-Transformer (https://github.com/JDAI-CV/image-captioning, no licence stated) share.

Number 0 is begin, end and padding; embedding and logits have V + 1 rows. Shapes determine everything but `max_len`.
"""

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from zoo.converter import Converter, TensorAxis, Tensors

ATTENTION = (
    (r"\bin_proj_(q|v1)\b", "query"),
    (r"\bin_proj_(k|v2)\b", "memory"),
    (r"\b(query|memory)\.0\b", r"\1.linear"),
    (r"\b(query|memory)\.2\b", r"\1.norm"),
    (r"\battn_net\.attention_basic\.0\b", "joint"),
    (r"\battn_net\.attention_last\b", "spatial"),
    (r"\battn_net\.attention_last2\b", "channel"),
)
"""Names of an X-linear attention; see `zoo.converter.Converter.renames`."""
_AFTER = {"in_proj_q": "in_proj_v1", "in_proj_k": "in_proj_v2"}
_FIRST, _SECOND = (re.compile(rf"\b({'|'.join(names)})\b") for names in (_AFTER.keys(), _AFTER.values()))


class XLinearConverter(Converter):
    """An attention's two projections of the query become one tensor, and those of the memory."""

    def tensors(self, official: Mapping[str, Tensor]) -> Tensors:
        joined = {}
        for key, tensor in official.items():
            if not _SECOND.search(key):
                second = _FIRST.sub(lambda part: _AFTER[part[0]], key)
                joined[key] = torch.cat((tensor, official[second])) if second != key and second in official else tensor
        return super().tensors(joined)

    def sizes(self, official: Mapping[str, Tensor]) -> dict[str, int]:
        """See `Converter.sizes`; shapes tell the channels of a head."""
        sizes = super().sizes(official)
        return {**sizes, "n_heads": sizes["d_model"] // sizes["n_heads"]}


def x_linear_sizes(encoder: str, logits: str) -> dict[str, TensorAxis]:
    """The tensors and axes that tell the sizes, by the names of the encoder and of the layer of logits."""
    attention = f"{encoder}.layers.0.encoder_attn.attn_net.attention_basic.0.weight"
    return {
        "vocab_size": (f"{logits}.weight", 0),
        "visual_dim": ("att_embed.0.weight", 1),
        "d_model": ("att_embed.0.weight", 0),
        "d_attention": (attention, 0),
        "n_heads": (attention, 1),
    }
