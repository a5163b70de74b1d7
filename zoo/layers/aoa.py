"""Attention on attention (Huang et al., ICCV 2019, "Attention on Attention for Image Captioning", equations 3 to 8)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.captioner import Memory, Visual
from zoo.errors import ZooError
from zoo.layers.annotated_norm import AnnotatedNorm
from zoo.layers.attention import SelfAttention
from zoo.layers.spatial_graph import SpatialGraphAttention


@dataclass(frozen=True, slots=True)
class AoADropouts:
    """Rates on the attention's probabilities, on a layer's output, and on the input of `AttentionOnAttention`."""

    attention: float = 0.1
    residual: float = 0.1
    gate: float = 0.3


class AttentionOnAttention(nn.Module):
    """GLU(W [attended; query] + b): an information vector times a sigmoid gate, both seen from result and query.

    Without a rate there is no dropout on the input.
    """

    def __init__(self, d_model: int, dropout: float | None = None) -> None:
        super().__init__()
        self.mix = nn.Linear(2 * d_model, 2 * d_model)
        self.dropout = nn.Dropout(dropout) if dropout is not None else None

    def forward(self, attended: Tensor, query: Tensor) -> Tensor:
        """Two tensors (..., D) to (..., D)."""
        both = torch.cat((attended, query), -1)
        return F.glu(self.mix(both if self.dropout is None else self.dropout(both)), -1)


class AoALayer(nn.Module):
    """x + dropout(AoA(mixer(norm(x)), norm(x))): a refining layer of AoANet, without feed-forward."""

    def __init__(self, mixer: SelfAttention | SpatialGraphAttention, d_model: int, dropouts: AoADropouts) -> None:
        super().__init__()
        self.norm = AnnotatedNorm(d_model)
        self.mixer = mixer
        self.gate = AttentionOnAttention(d_model, dropouts.gate)
        self.dropout = nn.Dropout(dropouts.residual)

    def forward(self, x: Tensor, mask: Tensor | None = None, *graph: Tensor) -> Tensor:
        """(B, L, D) to (B, L, D); `mask` (B, L) is true at valid regions, a `graph` (B, L, L) goes to the mixer."""
        y = self.norm(x)
        refined: Tensor = x + self.dropout(self.gate(self.mixer(y, mask, *graph), y))
        return refined


class AoARefiner(nn.Module):
    """A stack of refining layers and a last norm.

    Layers whose numbers, counted from 1, are in `wide` attend along a spatial graph.
    """

    def __init__(
        self, d_model: int, n_heads: int, n_layers: int, dropouts: AoADropouts, wide: Collection[int] = ()
    ) -> None:
        super().__init__()
        self.wide = frozenset(wide)
        self.layers = nn.ModuleList(
            AoALayer(
                SpatialGraphAttention(d_model, n_heads, dropouts.attention)
                if number in self.wide
                else SelfAttention(d_model, n_heads, causal=False, dropout=dropouts.attention, output=False),
                d_model,
                dropouts,
            )
            for number in range(1, n_layers + 1)
        )
        self.norm = AnnotatedNorm(d_model)

    def forward(self, x: Tensor, mask: Tensor | None = None, graph: Tensor | None = None) -> Tensor:
        """(B, L, D) to (B, L, D); see `AoALayer`. Without a `graph`, wide layers see all regions as their own kind."""
        for number, layer in enumerate(self.layers, 1):
            x = layer(x, mask) if graph is None or number not in self.wide else layer(x, mask, graph)
        refined: Tensor = self.norm(x)
        return refined


class AoAEncoder(nn.Module):
    """refiner(dropout(relu(W v + b))) of region features v; without a refiner, what it would have refined."""

    def __init__(self, visual_dim: int, d_model: int, dropout: float, refiner: AoARefiner | None) -> None:
        super().__init__()
        self.input = nn.Linear(visual_dim, d_model)
        self.dropout = nn.Dropout(dropout)
        self.refiner = refiner

    def forward(self, visual: Visual, graph: Tensor | None = None) -> Memory:
        """Padded regions are blanked first, so that not even a NaN in them can spread."""
        if visual.features is None:
            raise ZooError("this model needs visual features, and got none")
        x, mask = visual.features.to(self.input.weight.dtype), visual.mask
        if mask is None:
            mask = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        x = self.dropout(self.input(x.masked_fill(~mask[..., None], 0.0)).relu())
        return Memory(x if self.refiner is None else self.refiner(x, mask, graph), mask)
