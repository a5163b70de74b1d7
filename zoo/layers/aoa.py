"""Attention on attention.

L. Huang, W. Wang, J. Chen, X.-Y. Wei: "Attention on Attention for Image Captioning", ICCV 2019, section 3.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.layers.annotated_norm import AnnotatedNorm
from zoo.layers.attention import SelfAttention, mask_to_bias, split_heads
from zoo.layers.residual import EncoderLayer


class AttentionOnAttention(nn.Module):
    """GLU(W [attended; query] + b): an information vector times a sigmoid gate, both from attended vector and query.

    Args:
        dropout: rate on the input; None for no dropout module, so that `Captioner.set_dropout` cannot set a rate.
    """

    def __init__(self, d_model: int, dropout: float | None = None) -> None:
        super().__init__()
        self.mix = nn.Linear(2 * d_model, 2 * d_model)
        self.matrices_in = {"mix": 2}
        self.dropout = nn.Dropout(dropout) if dropout is not None else None

    def forward(self, attended: Tensor, query: Tensor) -> Tensor:
        """Two tensors (..., D) to (..., D)."""
        x = torch.cat((attended, query), -1)
        if self.dropout is not None:
            x = self.dropout(x)
        return F.glu(self.mix(x), -1)


class MemoriesAttention(nn.Module):
    """1/M sum_m attend_m(q): a query of `n_heads` heads attends to M memories, each with its own keys and values.

    The memories are concatenated along the regions, so that one product computes the scores of all of them, and
    another one the sum of their results.
    """

    def __init__(self, n_heads: int, n_memories: int, dropout: float) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.n_memories = n_memories
        self.dropout = nn.Dropout(dropout)

    def prepare(self, keys: Tensor, values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Prepare keys and values once for all queries of an image.

        Args:
            keys, values: (B, L, M, D).
            mask: (B, L), true at valid regions; without any valid region, queries attend to all of them evenly.

        Returns:
            Keys and values (B, H, M * L, d_k), scaled, and the attention bias (B, H, 1, M * L).
        """
        keys, values = (
            part.view(*part.shape[:3], self.n_heads, -1).permute(0, 3, 2, 1, 4).flatten(2, 3) for part in (keys, values)
        )
        attention_bias, [keys] = mask_to_bias(mask, [keys * keys.shape[-1] ** -0.5])
        return keys, values / self.n_memories, attention_bias.repeat(1, self.n_heads, 1, self.n_memories)

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor, attention_bias: Tensor) -> Tensor:
        """Queries (B * n, D), n adjacent rows for each image, and the results of `prepare`, to (B * n, D)."""
        heads = split_heads(queries.to(keys.dtype).view(len(keys), -1, queries.shape[1]), self.n_heads)
        if self.n_memories == 1:
            rate = self.dropout.p if self.training else 0.0
            attended = F.scaled_dot_product_attention(heads, keys, values, attention_bias, rate, scale=1.0)
            return attended.transpose(1, 2).reshape(queries.shape)
        scores = torch.baddbmm(attention_bias.flatten(0, 1), heads.flatten(0, 1), keys.flatten(0, 1).transpose(1, 2))
        scores = scores.view(*heads.shape[:3], self.n_memories, -1)
        weights = self.dropout(scores.softmax(-1)).flatten(0, 1).flatten(2)
        attended = torch.bmm(weights.to(values.dtype), values.flatten(0, 1))
        return attended.view(heads.shape).transpose(1, 2).reshape(queries.shape)


@dataclass(frozen=True, slots=True)
class AoADropouts:
    """Rates on the attention's probabilities, on a layer's branch, and on the input of `AttentionOnAttention`."""

    attention: float
    branch: float
    gate: float


class AoARefiner(nn.Module):
    """AoANet's refiner: layers x + dropout(AoA(attention(norm(x)), norm(x))) without feed-forward, then a norm."""

    def __init__(self, d_model: int, n_heads: int, n_layers: int, dropouts: AoADropouts) -> None:
        super().__init__()
        self.layers = nn.ModuleList(aoa_layer(d_model, n_heads, dropouts) for _ in range(n_layers))
        self.norm = AnnotatedNorm(d_model)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """(B, L, D) to (B, L, D); `mask` (B, L) is true at valid regions."""
        for layer in self.layers:
            x = layer(x, mask)
        refined: Tensor = self.norm(x)
        return refined


def aoa_layer(d_model: int, n_heads: int, dropouts: AoADropouts) -> EncoderLayer:
    """A layer of `AoARefiner`."""
    gate = AttentionOnAttention(d_model, dropouts.gate)
    mixer = SelfAttention(d_model, n_heads, causal=False, dropout=dropouts.attention, gate=gate)
    return EncoderLayer(mixer, d_model, None, dropouts.branch, norm=AnnotatedNorm)
