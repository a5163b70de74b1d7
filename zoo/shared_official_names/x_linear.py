"""Names of tensors that X-LAN and X-Transformer share (https://github.com/JDAI-CV/image-captioning, no licence stated).

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
_SECOND_OF = {"in_proj_q": "in_proj_v1", "in_proj_k": "in_proj_v2"}
_FIRST = re.compile(r"\b(in_proj_q|in_proj_k)\b")
_SECOND = re.compile(r"\b(in_proj_v1|in_proj_v2)\b")


class XLinearConverter(Converter):
    """Concatenates the two projections of an attention's query to one tensor, and those of its memory."""

    def tensors(self, official: Mapping[str, Tensor]) -> Tensors:
        joined = {}
        for key, tensor in official.items():
            if _SECOND.search(key):
                continue
            second = _FIRST.sub(lambda match: _SECOND_OF[match[0]], key)
            if second != key and second in official:
                joined[key] = torch.cat((tensor, official[second]))
            else:
                joined[key] = tensor
        return super().tensors(joined)

    def sizes(self, official: Mapping[str, Tensor]) -> dict[str, int]:
        """See `Converter.sizes`; shapes have the channels of a head instead of the number of heads."""
        sizes = super().sizes(official)
        return {**sizes, "n_heads": sizes["d_model"] // sizes["n_heads"]}


def x_linear_sizes(encoder: str, logits: str) -> dict[str, TensorAxis]:
    """Tensors and axes of the sizes, given the names of the encoder and of the output layer."""
    attention = f"{encoder}.layers.0.encoder_attn.attn_net.attention_basic.0.weight"
    return {
        "vocab_size": (f"{logits}.weight", 0),
        "visual_dim": ("att_embed.0.weight", 1),
        "d_model": ("att_embed.0.weight", 0),
        "d_attention": (attention, 0),
        "n_heads": (attention, 1),
    }
