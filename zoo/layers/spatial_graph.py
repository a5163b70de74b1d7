"""Attention along a spatial graph of regions.

S. He, W. Liao, H. R. Tavakoli, M. Yang, B. Rosenhahn, N. Pugeault: "Image Captioning through Image Transformer", ACCV
2020 (arXiv:2004.14231), section 3.2, with the code https://github.com/wtliao/ImageTransformer (no licence stated).
Where paper and code differ, `GraphMode` names both.
"""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.layers.attention import fuse_linears, head_width, split_heads

GraphMode = Literal["paper", "official"]
"""`paper` clamps the sides of an intersection at zero. `official`, as the released code, does not: the intersection of
boxes with a gap in both directions is then the product of the gaps, and some of them count as one inside the other."""

CHILD, NEIGHBOUR, PARENT = 1, 2, 3
"""Relation of region j to region i: inside it, neither, or around it; 0 for padding. `spatial_graph` adds and subtracts
1 from NEIGHBOUR, so the values must be consecutive."""
_INSIDE = 0.9


def spatial_graph(boxes: Tensor, mask: Tensor | None = None, *, mode: GraphMode = "paper") -> Tensor:
    """The relations of all pairs of regions.

    Region i is inside j if their intersection covers at least 0.9 of i, and a larger share of i than of j, so that
    equal boxes are neighbours. Shares are compared in at least single precision.

    Args:
        boxes: (B, L, 4) as x1, y1, x2, y2, in any unit.
        mask: (B, L), true at valid regions.

    Returns:
        (B, L, L) uint8 of `CHILD`, `NEIGHBOUR` (the diagonal too) and `PARENT`, 0 in rows and columns of padding.
    """
    boxes = boxes.to(torch.promote_types(boxes.dtype, torch.float32))
    low = boxes[..., :2]
    high = boxes[..., 2:]
    sides = torch.minimum(high[:, :, None], high[:, None]) - torch.maximum(low[:, :, None], low[:, None])
    if mode == "paper":
        sides = sides.clamp(min=0)
    intersections = sides.prod(-1)
    covered = intersections / (high - low).prod(-1)[:, :, None]  # [i, j]: the share of i that lies in j
    inside = ((covered >= _INSIDE) & (covered > covered.transpose(1, 2))).to(torch.uint8)
    graph = NEIGHBOUR + inside - inside.transpose(1, 2)
    return graph if mask is None else graph * (mask[:, :, None] & mask[:, None])


class SpatialGraphAttention(nn.Module):
    """The sum of three attentions with one query, each over the regions of one relation (equations 6 and 7).

    Every branch has its softmax over all valid regions; weights of other relations are set to zero afterwards, without
    normalising again. Without a graph, the branches use all regions and are averaged. The `gate` maps their sum and
    the query to the output (attention on attention).
    """

    kinds: Tensor

    def __init__(self, d_model: int, n_heads: int, dropout: float, gate: nn.Module) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.d_head = head_width(d_model, n_heads)
        self.query = nn.Linear(d_model, d_model)
        self.keys = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(3))
        self.values = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(3))
        self.dropout = nn.Dropout(dropout)
        self.gate = gate
        kinds = torch.tensor([CHILD, NEIGHBOUR, PARENT], dtype=torch.uint8)
        self.register_buffer("kinds", kinds[:, None], persistent=False)

    def forward(self, x: Tensor, mask: Tensor | None = None, graph: Tensor | None = None) -> Tensor:
        """(B, L, D) to (B, L, D); `mask` (B, L) is true at valid regions, `graph` (B, L, L) is from `spatial_graph`.

        Keys and values of the three branches are concatenated along the regions, so that one product computes all
        scores, and another one the sum over the branches.
        """
        batch, length, width = x.shape
        branches: list[nn.Linear] = [*self.keys, *self.values]
        queries, keys, values = torch.split(
            F.linear(x, *fuse_linears(self.query, *branches)), [width, 3 * width, 3 * width], -1
        )
        heads = split_heads(queries, self.n_heads) * self.d_head**-0.5
        scores = (heads @ self._branches(keys).transpose(-1, -2)).view(batch, self.n_heads, length, 3, length)
        if mask is not None:
            scores = torch.where(mask[:, None, None, None], scores, torch.finfo(scores.dtype).min)
        weights = self.mask_by_relation(self.dropout(scores.softmax(-1)), graph)
        attended = weights.flatten(-2) @ self._branches(values)
        output: Tensor = self.gate(attended.transpose(1, 2).reshape(x.shape), x)
        return output

    def mask_by_relation(self, weights: Tensor, graph: Tensor | None) -> Tensor:
        """Weights (B, H, L, 3, L), set to zero where a region does not have the branch's relation.

        Without a graph, all of them divided by 3.
        """
        if graph is None:
            return weights / 3
        return weights * (graph[:, :, None] == self.kinds)[:, None]

    def _branches(self, x: Tensor) -> Tensor:
        """(B, L, 3 * D) to (B, H, 3 * L, D / H)."""
        return x.view(*x.shape[:2], 3, self.n_heads, -1).permute(0, 3, 2, 1, 4).flatten(2, 3)
