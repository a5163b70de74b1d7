"""The meshed-memory transformer.

M. Cornia, M. Stefanini, L. Baraldi, R. Cucchiara: "Meshed-Memory Transformer for Image Captioning", CVPR 2020
(arXiv:1912.08226). Code: https://github.com/aimagelab/meshed-memory-transformer (BSD-3-Clause), which also zeroes the
rows of padding words; this is not needed, since they are at the end, invisible to other rows and ignored by losses.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.captioner import Memory, Visual, VisualSpec
from zoo.converter import Converter
from zoo.errors import check_at_least_1
from zoo.layers.attention import MultiHeadAttention, SelfAttention, attend, split_heads
from zoo.layers.residual import DecoderLayer, EncoderLayer
from zoo.shared_official_names.meshed_memory import BRANCHES, HINT, NAMES, SIZES, STACKS, STATES
from zoo.stacked import StackedCaptioner


class MemoryAttention(MultiHeadAttention):
    """Self-attention of regions with additional learned keys and values, the memory slots, the same for every image.

    The slots are scaled: keys by sqrt(d_k), values by sqrt(slots).
    """

    def __init__(self, d_model: int, n_heads: int, slots: int) -> None:
        super().__init__(d_model, n_heads)
        self.memory_keys = nn.Parameter(torch.randn(1, slots, d_model) * (n_heads / d_model))
        self.memory_values = nn.Parameter(torch.randn(1, slots, d_model) / slots)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:  # type: ignore[override]
        """(B, L, D) to (B, L, D); `mask` (B, L) is true at valid regions."""
        slots = self.memory_keys.shape[1]
        d_k = x.shape[-1] // self.n_heads
        keys = self._append_slots(self.key(x), self.memory_keys * d_k**0.5)
        values = self._append_slots(self.value(x), self.memory_values * slots**0.5)
        return super().forward(x, keys, values, F.pad(mask, (0, slots), value=True))

    def _append_slots(self, regions: Tensor, slots: Tensor) -> Tensor:
        slots = slots.to(regions.dtype).expand(len(regions), -1, -1)
        return self._heads(torch.cat((regions, slots), 1))


class LevelAttention(MultiHeadAttention):
    """Attention to each of N levels of an encoder separately, with the same weights."""

    def __init__(self, d_model: int, n_heads: int, n_levels: int) -> None:
        super().__init__(d_model, n_heads)
        self.n_levels = n_levels

    def project(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values (B, N * H, L, d_k) of concatenated levels (B, L, N * D)."""
        levels = memory.view(*memory.shape[:2], self.n_levels, -1)
        keys, values = (layer(levels).flatten(2) for layer in (self.key, self.value))
        heads = self.n_levels * self.n_heads
        return split_heads(keys, heads), split_heads(values, heads)

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None) -> Tensor:
        """Queries (B * n, T, D) to (B * n, T, N, D); see `MultiHeadAttention.forward`."""
        heads = self._heads(self.query(queries).view(keys.shape[0], -1, queries.shape[-1]))
        attended = attend(heads.repeat(1, self.n_levels, 1, 1), keys, values, mask)
        return self._output(attended, queries[:, :, None].expand(-1, -1, self.n_levels, -1))


class MeshedDecoderLayer(DecoderLayer):
    """A post-norm layer with cross-attention to every level of the encoder, gated channel by channel.

    s_j = norm(x + attention_j(x)) for each level j; the output is sum_j sigmoid(W_j [x; s_j] + b_j) * s_j / sqrt(N).
    """

    def __init__(self, d_model: int, d_ff: int, n_heads: int, n_levels: int, dropout: float) -> None:
        mixer = SelfAttention(d_model, n_heads, causal=True)
        cross_attention = LevelAttention(d_model, n_heads, n_levels)
        super().__init__(mixer, cross_attention, d_model, d_ff, dropout, post_norm=True)
        self.gates = nn.ModuleList(nn.Linear(2 * d_model, d_model) for _ in range(n_levels))

    def cross_attention_branch(
        self, x: Tensor, keys: Tensor, values: Tensor, memory_mask: Tensor | None, *_: Tensor
    ) -> Tensor:
        attended = self.cross_attention(x, keys, values, memory_mask)
        levels = self.add_branch(x[:, :, None], attended, self.cross_norm).unbind(2)
        gated = []
        for gate, level in zip(self.gates, levels, strict=True):
            gated.append(gate(torch.cat((x, level), -1)).sigmoid() * level)
        return torch.stack(gated).sum(0) / math.sqrt(len(levels))


class MeshedMemoryTransformer(StackedCaptioner):
    """An encoder with memory slots, and a decoder with gated cross-attention to all its levels; all post-norm.

    Args:
        n_encoder_layers: layers of the encoder; the output of each is a level.
        dropout: on the embedded regions, in every feed-forward and on every branch.
        memory_slots: number of learned keys and values in each encoder layer.
        quirks: reproduce faults of the released code: all matrices start Xavier-uniform, including the memory slots
            and the fixed table of positions, which is therefore random; and padding is inferred from the embedded
            regions after their norm, which finds none, so that an image's captions depend on its padding.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        visual_dim: int,
        d_model: int = 512,
        d_ff: int = 2048,
        n_heads: int = 8,
        n_encoder_layers: int = 3,
        n_decoder_layers: int = 3,
        dropout: float = 0.1,
        max_len: int = 54,
        memory_slots: int = 40,
        quirks: bool = False,
    ) -> None:
        super().__init__(VisualSpec("regions", visual_dim), vocab_size, max_len)
        check_at_least_1(memory_slots=memory_slots)
        self.quirks = quirks
        self.input = nn.Linear(visual_dim, d_model)
        self.input_dropout = nn.Dropout(dropout)
        self.input_norm = nn.LayerNorm(d_model)
        self.encoder_layers = nn.ModuleList(
            EncoderLayer(MemoryAttention(d_model, n_heads, memory_slots), d_model, d_ff, dropout, post_norm=True)
            for _ in range(n_encoder_layers)
        )
        layers = (
            MeshedDecoderLayer(d_model, d_ff, n_heads, n_encoder_layers, dropout) for _ in range(n_decoder_layers)
        )
        self.build_decoder(d_model, dropout, layers)
        self.init_weights(quirks=quirks)

    def encode(self, visual: Visual) -> Memory:
        """See `Captioner.encode`; the features (B, L, N * D) hold the concatenated levels."""
        features, mask = visual.valid_features(self.input.weight.dtype)
        x = self.input_norm(self.input_dropout(self.input(features).relu()))
        if self.quirks:
            mask = x.sum(-1) != 0
        levels = []
        for layer in self.encoder_layers:
            x = layer(x, mask)
            levels.append(x)
        return Memory(torch.cat(levels, -1), mask)


CONVERTER = Converter(
    source="the meshed-memory transformer",
    renames=(
        (r"^encoder\.fc\b", "input"),
        (r"^encoder\.layer_norm\b", "input_norm"),
        *NAMES,
        *BRANCHES,
        (r"\bfc_alpha(\d+)\b", lambda match: f"gates.{int(match[1]) - 1}"),
        (r"\bm_k\b", "memory_keys"),
        (r"\bm_v\b", "memory_values"),
    ),
    unused=STATES,
    size_axes={
        **SIZES,
        "visual_dim": ("encoder.fc.weight", 1),
        "memory_slots": ("encoder.layers.0.mhatt.attention.m_k", 1),
    },
    stacks=STACKS,
    fixed={"quirks": True},
    padded_positions=True,
    hint=HINT,
)
"""Weights of the authors' code, trained with its faults: see `zoo.shared_official_names.meshed_memory`."""
