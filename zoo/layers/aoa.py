"""Attention on attention.

L. Huang, W. Wang, J. Chen, X.-Y. Wei: "Attention on Attention for Image Captioning", ICCV 2019, section 3; along a
spatial graph of regions S. He et al.: "Image Captioning through Image Transformer", ACCV 2020 (arXiv:2004.14231),
section 3.2, with the code https://github.com/wtliao/ImageTransformer (no licence stated): where paper and code differ,
`GraphMode` names both.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.layers.annotated_norm import AnnotatedNorm
from zoo.layers.attention import SelfAttention, head_width, joined, mask_to_bias, split_heads
from zoo.layers.residual import EncoderLayer

GraphMode = Literal["paper", "official"]
"""`paper` clamps an intersection at zero. `official` does not, as in the released code: the intersection of boxes that
are apart in both directions is then the product of the two gaps, and some of them count as one inside the other."""

CHILD, NEIGHBOUR, PARENT = 1, 2, 3
"""Relation of region j to region i: inside it, neither, or around it; 0 for padding. One apart, as the graph needs."""
_INSIDE = 0.9


def spatial_graph(boxes: Tensor, mask: Tensor | None = None, *, mode: GraphMode = "paper") -> Tensor:
    """The relations of all pairs of regions.

    Region i is inside j if at least nine tenths of its area is, and more of its own than of j's: equal boxes are
    neighbours. The shares are compared in the boxes' own precision, or in single if that is higher.

    Args:
        boxes: (B, L, 4) as x1, y1, x2, y2, in any unit.
        mask: (B, L), true at valid regions.

    Returns:
        (B, L, L) uint8 of `CHILD`, `NEIGHBOUR` (the diagonal too) and `PARENT`, 0 in rows and columns of padding.
    """
    boxes = boxes.to(torch.promote_types(boxes.dtype, torch.float32))
    low, high = boxes[..., :2], boxes[..., 2:]
    sides = torch.minimum(high[:, :, None], high[:, None]) - torch.maximum(low[:, :, None], low[:, None])
    if mode == "paper":
        sides = sides.clamp(min=0)
    intersections = sides.prod(-1)
    own = intersections / (high - low).prod(-1)[:, :, None]  # the share of i that lies in j; its transpose, that of j
    inside = ((own >= _INSIDE) & (own > own.transpose(1, 2))).to(torch.uint8)
    graph = NEIGHBOUR + inside - inside.transpose(1, 2)
    return graph if mask is None else graph * (mask[:, :, None] & mask[:, None])


class SpatialGraphAttention(nn.Module):
    """The sum of three attentions with one query, each over the regions of one relation (equations 6 and 7).

    Every branch has its softmax over all valid regions; those of other relations are set to zero afterwards, without
    normalising again. Without a graph, the branches use all regions and are averaged. The `gate` combines their answer
    with the query (attention on attention).
    """

    kinds: Tensor

    def __init__(self, d_model: int, n_heads: int, dropout: float, gate: nn.Module) -> None:
        super().__init__()
        self.n_heads, self.d_head = n_heads, head_width(d_model, n_heads)
        self.query = nn.Linear(d_model, d_model)
        self.keys = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(3))
        self.values = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(3))
        self.dropout = nn.Dropout(dropout)
        self.gate = gate
        kinds = torch.tensor([CHILD, NEIGHBOUR, PARENT], dtype=torch.uint8)
        self.register_buffer("kinds", kinds[:, None], persistent=False)

    def forward(self, x: Tensor, mask: Tensor | None = None, graph: Tensor | None = None) -> Tensor:
        """(B, L, D) to (B, L, D); `mask` (B, L) is true at valid regions, `graph` (B, L, L) is of `spatial_graph`.

        The keys and values of the three branches stand one after the other, so that one product scores all of them, and
        another one sums their answers.
        """
        batch, length, width = x.shape
        branches: list[nn.Linear] = [*self.keys, *self.values]
        queries, keys, values = torch.split(
            F.linear(x, *joined(self.query, *branches)), [width, 3 * width, 3 * width], -1
        )
        heads = split_heads(queries, self.n_heads) * self.d_head**-0.5
        scores = (heads @ self._branches(keys).transpose(-1, -2)).view(batch, self.n_heads, length, 3, length)
        if mask is not None:
            scores = torch.where(mask[:, None, None, None], scores, torch.finfo(scores.dtype).min)
        weights = self.along(self.dropout(scores.softmax(-1)), graph)
        answer = weights.flatten(-2) @ self._branches(values)
        joint: Tensor = self.gate(answer.transpose(1, 2).reshape(x.shape), x)
        return joint

    def along(self, weights: Tensor, graph: Tensor | None) -> Tensor:
        """Weights (B, H, L, 3, L) of each branch for the regions of its relation; without a graph a third of all."""
        return weights / 3 if graph is None else weights * (graph[:, :, None] == self.kinds)[:, None]

    def _branches(self, x: Tensor) -> Tensor:
        """(B, L, 3 * D) to (B, H, 3 * L, D / H)."""
        return x.view(*x.shape[:2], 3, self.n_heads, -1).permute(0, 3, 2, 1, 4).flatten(2, 3)


class AttentionOnAttention(nn.Module):
    """GLU(W [attended; query] + b): an information vector times a sigmoid gate, both computed from answer and query.

    Without a rate there is no dropout on the input, and a stage cannot set one.
    """

    def __init__(self, d_model: int, dropout: float | None = None) -> None:
        super().__init__()
        self.mix = nn.Linear(2 * d_model, 2 * d_model)
        self.matrices_in = {"mix": 2}
        self.dropout = nn.Dropout(dropout) if dropout is not None else None

    def forward(self, attended: Tensor, query: Tensor) -> Tensor:
        """Two tensors (..., D) to (..., D)."""
        both = torch.cat((attended, query), -1)
        return F.glu(self.mix(both if self.dropout is None else self.dropout(both)), -1)


class MemoriesAttention(nn.Module):
    """1/M sum_m attend_m(q): one query of `n_heads` heads attends to M projected keys and values.

    The memories stand one after the other, so that one product scores all of them, and another one sums their answers.
    """

    def __init__(self, n_heads: int, n_memories: int, dropout: float) -> None:
        super().__init__()
        self.n_heads, self.n_memories = n_heads, n_memories
        self.dropout = nn.Dropout(dropout)

    def prepare(self, keys: Tensor, values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Do once for an image what does not depend on the query.

        Args:
            keys, values: (B, L, M, D).
            mask: (B, L), true at valid regions; an image without any attends to all of them evenly.

        Returns:
            Keys and values (B, H, M * L, d_k), scaled, and what is added to the scores (B, H, 1, M * L).
        """
        keys, values = (
            part.view(*part.shape[:3], self.n_heads, -1).permute(0, 3, 2, 1, 4).flatten(2, 3) for part in (keys, values)
        )
        attention_bias, [keys] = mask_to_bias(mask, [keys * keys.shape[-1] ** -0.5])
        return keys, values / self.n_memories, attention_bias.repeat(1, self.n_heads, 1, self.n_memories)

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor, attention_bias: Tensor) -> Tensor:
        """Queries (B * n, D) of an image's n rows, and what `prepare` gives, to (B * n, D)."""
        heads = split_heads(queries.to(keys.dtype).view(len(keys), -1, queries.shape[1]), self.n_heads)
        if self.n_memories == 1:
            rate = self.dropout.p if self.training else 0.0
            answer = F.scaled_dot_product_attention(heads, keys, values, attention_bias, rate, scale=1.0)
            return answer.transpose(1, 2).reshape(queries.shape)
        scores = torch.baddbmm(attention_bias.flatten(0, 1), heads.flatten(0, 1), keys.flatten(0, 1).transpose(1, 2))
        scores = scores.view(*heads.shape[:3], self.n_memories, -1)
        weights = self.dropout(scores.softmax(-1)).flatten(0, 1).flatten(2)
        answer = torch.bmm(weights.to(values.dtype), values.flatten(0, 1))
        return answer.view(heads.shape).transpose(1, 2).reshape(queries.shape)


@dataclass(frozen=True, slots=True)
class AoADropouts:
    """Rates on the attention's probabilities, on a layer's branch, and on the input of `AttentionOnAttention`."""

    attention: float
    branch: float
    gate: float


class AoARefiner(nn.Module):
    """AoANet's refiner: layers x + dropout(AoA(attention(norm(x)), norm(x))) without feed-forward, and a last norm.

    Layers whose number, counted from 1, is in `wide` have three attentions, along a spatial graph if there is one.
    """

    def __init__(
        self, d_model: int, n_heads: int, n_layers: int, dropouts: AoADropouts, wide: Collection[int] = ()
    ) -> None:
        super().__init__()
        self.wide = frozenset(wide)
        self.layers = nn.ModuleList()
        for number in range(1, n_layers + 1):
            gate = AttentionOnAttention(d_model, dropouts.gate)
            mixer = (
                SpatialGraphAttention(d_model, n_heads, dropouts.attention, gate)
                if number in self.wide
                else SelfAttention(d_model, n_heads, causal=False, dropout=dropouts.attention, gate=gate)
            )
            self.layers.append(EncoderLayer(mixer, d_model, None, dropouts.branch, norm=AnnotatedNorm))
        self.norm = AnnotatedNorm(d_model)

    def forward(self, x: Tensor, mask: Tensor, graph: Tensor | None = None) -> Tensor:
        """(B, L, D) to (B, L, D); `mask` (B, L) is true at valid regions, `graph` (B, L, L) is of `spatial_graph`."""
        for number, layer in enumerate(self.layers, 1):
            x = layer(x, mask) if graph is None or number not in self.wide else layer(x, mask, graph)
        refined: Tensor = self.norm(x)
        return refined
