"""The meshed-memory transformer.

M. Cornia, M. Stefanini, L. Baraldi, R. Cucchiara: "Meshed-Memory Transformer for Image Captioning", CVPR 2020
(arXiv:1912.08226). Code: https://github.com/aimagelab/meshed-memory-transformer (BSD-3-Clause), which also zeroes the
rows of padding words; this is not needed, since they are at the end, invisible to other rows and ignored by losses.
"""

from __future__ import annotations

import torch
from torch import nn

from zoo.captioner import Memory, Visual, VisualSpec
from zoo.errors import ZooError
from zoo.layers.attention import SelfAttention
from zoo.layers.embedding import FixedPositions, TokenEmbedding, sinusoids
from zoo.layers.meshed import LevelAttention, MemoryAttention, MeshedDecoderLayer
from zoo.layers.residual import EncoderLayer, StackOutput
from zoo.stacked import StackedCaptioner


class MeshedMemoryTransformer(StackedCaptioner):
    """An encoder with memory slots, and a decoder with gated cross-attention to every level of it; all post-norm.

    Args:
        vocab_size, visual_dim, d_model, d_ff, n_heads, n_encoder_layers, n_decoder_layers: sizes; the encoder has as
            many levels as layers.
        dropout: on the embedded regions, in every feed-forward and on every branch.
        max_len: maximum caption length; no parameter depends on it.
        memory_slots: learned keys and values of each encoder layer.
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
        super().__init__()
        if n_encoder_layers < 1 or memory_slots < 1:
            raise ZooError(
                f"n_encoder_layers and memory_slots must be at least 1, not {n_encoder_layers} and {memory_slots}"
            )
        self.visual = VisualSpec("regions", visual_dim)
        self.vocab_size = vocab_size
        self.max_len = max_len
        self.quirks = quirks
        self.input = nn.Linear(visual_dim, d_model)
        self.input_dropout = nn.Dropout(dropout)
        self.input_norm = nn.LayerNorm(d_model)
        self.encoder_layers = nn.ModuleList(
            EncoderLayer(MemoryAttention(d_model, n_heads, memory_slots), d_model, d_ff, dropout, post_norm=True)
            for _ in range(n_encoder_layers)
        )
        # Position 0 is padding in the authors' table, which is saved since it cannot be computed.
        positions = FixedPositions(sinusoids(max_len + 1, d_model), first=1, saved=True)
        self.embedding = TokenEmbedding(vocab_size, d_model, max_len, None, positions=positions, scale=1.0)
        self.decoder_layers = nn.ModuleList(
            MeshedDecoderLayer(
                SelfAttention(d_model, n_heads, causal=True),
                LevelAttention(d_model, n_heads, n_encoder_layers),
                d_model,
                d_ff,
                dropout,
            )
            for _ in range(n_decoder_layers)
        )
        self.decoder_output = StackOutput(d_model, n_decoder_layers, dropout, reduce=False, norm=nn.Identity)
        self.vocabulary = nn.Linear(d_model, vocab_size, bias=False)
        for parameter in self.parameters():
            if parameter.dim() == 2 or (parameter.dim() > 2 and quirks):
                nn.init.xavier_uniform_(parameter)
        if quirks:
            nn.init.xavier_uniform_(positions.table)

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
