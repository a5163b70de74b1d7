"""Graph convolution over regions with labelled, directed edges.

T. Yao, Y. Pan, Y. Li, T. Mei: "Exploring Visual Relationship for Image Captioning", ECCV 2018 (arXiv:1809.07041), as
https://github.com/YehLi/xmodaler (Apache-2.0) has it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class RelationGraph(nn.Module):
    """x_i = dropout(relu(v_i + sigmoid(w_l v_i + b_l) (W_l v_i + c_l) + sums over the edges of region i)).

    Over each edge with label r from i to j, region i receives sigmoid(w_s v_j + g_r) (W_s v_j + B_r), and region j
    receives sigmoid(w_o v_i + g_r) (W_o v_i + B_r); gates are scalars.

    Args:
        dim: D, of the regions.
        n_labels: labels of edges, with 0 for none; 1 for a graph without edges.
        dropout: of the result.
        identity: whether v_i itself is added, as in the released code.
    """

    def __init__(self, dim: int, n_labels: int, dropout: float, *, identity: bool = True) -> None:
        super().__init__()
        self.identity = identity
        self.loop, self.loop_gate = nn.Linear(dim, dim), nn.Linear(dim, 1)
        self.connected = n_labels > 1
        if self.connected:
            self.forth, self.forth_gate = nn.Linear(dim, dim, bias=False), nn.Linear(dim, 1, bias=False)
            self.back, self.back_gate = nn.Linear(dim, dim, bias=False), nn.Linear(dim, 1, bias=False)
            self.label_bias = nn.Parameter(torch.zeros(n_labels, dim))
            self.label_gate = nn.Parameter(torch.zeros(n_labels, 1))
        self.dropout = nn.Dropout(dropout)

    def forward(self, regions: Tensor, relations: Tensor) -> Tensor:
        """Regions (B, N, D) to the same; `relations` (B, N, N) int64 has the labels of the edges from i to j."""
        x = self.loop_gate(regions).sigmoid() * self.loop(regions)
        if self.identity:
            x = x + regions
        if self.connected:
            gates = F.embedding(relations, self.label_gate)[..., 0]
            every = torch.arange(len(self.label_gate), device=relations.device)
            labels = (relations[..., None] == every).to(regions.dtype)
            x = x + self._received(regions, gates, labels, self.forth, self.forth_gate)
            gates, labels = gates.transpose(1, 2), labels.transpose(1, 2)
            x = x + self._received(regions, gates, labels, self.back, self.back_gate)
        convolved: Tensor = self.dropout(x.relu())
        return convolved

    def _received(self, regions: Tensor, gates: Tensor, labels: Tensor, layer: nn.Linear, gate: nn.Linear) -> Tensor:
        """What each region (rows) receives from all others (columns)."""
        open_ = (gates + gate(regions).transpose(1, 2)).sigmoid() * (1 - labels[..., 0])
        by_label = (open_[..., None] * labels).sum(2)
        received: Tensor = open_ @ layer(regions) + by_label @ self.label_bias
        return received


def label_matrix(relations: Tensor, count: int) -> Tensor:
    """Labels (B, N, N) of the edges from i to j, 0 for none, of relations (B, M, 3), -1 where padded.

    Of several relations of one ordered pair the highest label counts.

    Args:
        count: N, regions.
    """
    there = (relations >= 0).all(-1)
    subject, obj, label = relations.clamp(min=0).unbind(-1)
    labels = relations.new_zeros(relations.shape[0], count * count)
    labels = labels.scatter_reduce(1, (subject * count + obj) * there, label * there, "amax")
    return labels.view(-1, count, count)
