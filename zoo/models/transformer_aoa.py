"""A transformer of attention-on-attention blocks: "Base w/ AoA" in Table 2 of the ExpansionNet v1 paper.

J. C. Hu, R. Cavicchioli, A. Capotondi: "ExpansionNet: exploring the sequence length bottleneck in the Transformer for
Image Captioning", arXiv:2207.03327, after L. Huang et al.: "Attention on Attention for Image Captioning", ICCV 2019.
No code of this row was released; the paper tells three layers, no feed-forward, and self-attention instead of the LSTM.
Here the blocks are AoANet's, and words are embedded and weights drawn as in ExpansionNet.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from zoo.captioner import Captioner, DecodingState, Memory, Visual, VisualSpec
from zoo.layers.annotated_norm import AnnotatedNorm
from zoo.layers.aoa import AoADropouts, AoAEncoder, AoARefiner, AttentionOnAttention
from zoo.layers.attention import Cache, MultiHeadAttention, SelfAttention
from zoo.layers.embedding import TokenEmbedding


class AoADecoderLayer(nn.Module):
    """Attention on attention to the words so far, then to the image; each is x + dropout(AoA(f(norm(x)), norm(x)))."""

    def __init__(self, d_model: int, n_heads: int, dropouts: AoADropouts) -> None:
        super().__init__()
        rate = dropouts.attention
        self.self_norm = AnnotatedNorm(d_model)
        self.self_attention = SelfAttention(d_model, n_heads, causal=True, dropout=rate, output=False)
        self.self_gate = AttentionOnAttention(d_model, dropouts.gate)
        self.cross_norm = AnnotatedNorm(d_model)
        self.cross_attention = MultiHeadAttention(d_model, n_heads, dropout=rate, output=False)
        self.cross_gate = AttentionOnAttention(d_model, dropouts.gate)
        self.dropout = nn.Dropout(dropouts.residual)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        """(B * n, T, D) to the same; keys and values of `cross_attention.project`, `mask` (B, L) of the regions."""
        y = self.self_norm(x)
        x = x + self.dropout(self.self_gate(self.self_attention(y), y))
        return self._look(x, keys, values, mask)

    def step(
        self, x: Tensor, keys: Tensor, values: Tensor, mask: Tensor, cache: Cache, projection: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Cache]:
        """One position: x (R, 1, D) with the self-attention's cache of R rows and its `projection`."""
        y = self.self_norm(x)
        attended, cache = self.self_attention.step(y, cache, projection)
        return self._look(x + self.dropout(self.self_gate(attended, y)), keys, values, mask), cache

    def _look(self, x: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        y = self.cross_norm(x)
        looked: Tensor = x + self.dropout(self.cross_gate(self.cross_attention(y, keys, values, mask), y))
        return looked


class AoATransformer(Captioner):
    """AoANet's refiner as the encoder, and a decoder of the same blocks.

    Args:
        vocab_size, visual_dim, d_model, n_heads, n_encoder_layers, n_decoder_layers: sizes.
        d_ff: not used: there is no feed-forward.
        dropout: on embedded regions and words, and on the output of every attention.
        attention_dropout, gate_dropout: on the attention's probabilities, and on the input of attention on attention.
        max_len: rows of the position table.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        visual_dim: int,
        d_model: int = 512,
        d_ff: int = 2048,  # noqa: ARG002
        n_heads: int = 8,
        n_encoder_layers: int = 3,
        n_decoder_layers: int = 3,
        dropout: float = 0.3,
        attention_dropout: float = 0.1,
        gate_dropout: float = 0.3,
        max_len: int = 74,
    ) -> None:
        super().__init__()
        self.visual = VisualSpec("regions", visual_dim)
        self.vocab_size = vocab_size
        self.max_len = max_len
        dropouts = AoADropouts(attention_dropout, dropout, gate_dropout)
        refiner = AoARefiner(d_model, n_heads, n_encoder_layers, dropouts)
        self.encoder = AoAEncoder(visual_dim, d_model, dropout, refiner)
        self.embedding = TokenEmbedding(vocab_size, d_model, max_len, dropout)
        self.decoder_layers = nn.ModuleList(
            AoADecoderLayer(d_model, n_heads, dropouts) for _ in range(n_decoder_layers)
        )
        self.norm = AnnotatedNorm(d_model)
        self.vocabulary = nn.Linear(d_model, vocab_size)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)

    def encode(self, visual: Visual) -> Memory:
        """See `Captioner.encode`."""
        memory: Memory = self.encoder(visual)
        return memory

    def decode(self, memory: Memory, tokens: Tensor) -> Tensor:
        """See `Captioner.decode`. Padding stands at the end, where nothing looks at it."""
        x = self.embedding(tokens)
        for layer in self._layers():
            x = layer(x, *layer.cross_attention.project(memory.features), memory.mask)
        logits: Tensor = self.vocabulary(self.norm(x))
        return logits

    def start(self, memory: Memory) -> DecodingState:
        """See `Captioner.start`."""
        images, shared = {"mask": memory.mask}, {}
        rows = {"position": memory.mask.new_zeros(memory.batch_size, dtype=torch.long)}
        for index, layer in enumerate(self._layers()):
            images[f"{index}.keys"], images[f"{index}.values"] = layer.cross_attention.project(memory.features)
            cache = layer.self_attention.start(memory.features)
            rows[f"{index}.keys"], rows[f"{index}.values"] = cache["keys"], cache["values"]
            shared[f"{index}.weight"], shared[f"{index}.bias"] = layer.self_attention.projection()
        return DecodingState(images, rows, shared)

    def step(self, tokens: Tensor, state: DecodingState) -> tuple[Tensor, DecodingState]:
        """See `Captioner.step`."""
        images, shared, position = state.images, state.shared, state.rows["position"]
        x = self.embedding(tokens[:, None], position[:, None])
        rows = {"position": position + 1}
        for index, layer in enumerate(self._layers()):
            keys, values = f"{index}.keys", f"{index}.values"
            cache = {"keys": state.rows[keys], "values": state.rows[values]}
            projection = shared[f"{index}.weight"], shared[f"{index}.bias"]
            x, cache = layer.step(x, images[keys], images[values], images["mask"], cache, projection)
            rows[keys], rows[values] = cache["keys"], cache["values"]
        return self.vocabulary(self.norm(x))[:, 0], DecodingState(images, rows, shared)

    def _layers(self) -> Iterable[AoADecoderLayer]:
        return self.decoder_layers  # type: ignore[return-value]  # ModuleList is not generic
