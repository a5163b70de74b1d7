"""RSTNet: relation-enhanced encoding of a grid, and a decoder that tells visual from other words.

X. Zhang, X. Sun, Y. Luo, J. Ji, Y. Zhou, Y. Wu, F. Huang, R. Ji: "RSTNet: Captioning with Adaptive Attention on Visual
and Non-Visual Words", CVPR 2021. Code: https://github.com/zhangxuying1004/RSTNet (BSD-3-Clause), whose BERT is frozen
noise that sees later words in training, and one word at a time in decoding: see `bert` and `leak`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from zoo.captioner import DecodingState, Memory, Visual, VisualSpec
from zoo.errors import ZooError
from zoo.layers.embedding import FixedPositions, sinusoids
from zoo.layers.geometry import whole_where_padded
from zoo.layers.inner_residual import InnerResidual
from zoo.layers.language_signal import AdaptiveAttention, AdaptiveDecoderLayer, BertWords, LanguageSignal
from zoo.layers.relation_attention import PairWeights, PlacedCrossAttention, RelationAttention, corner_code
from zoo.models.doubly_residual import DoublyResidualCaptioner, EmbeddedTokens, encoder_layer, word_mixer

_SIGNAL = "language."


class RSTNet(DoublyResidualCaptioner):
    """Cells with their places and geometry through the encoder; a last decoder layer that sees a language signal too.

    Args:
        vocab_size, visual_dim, d_model, d_ff, n_heads, n_encoder_layers: sizes.
        n_decoder_layers: with the adaptive one, which is the last.
        dropout: on embedded cells and probabilities, in every feed-forward and on every branch.
        max_len: maximum caption length; no parameter depends on it.
        pixel_sizes: geometry as released, see `zoo.layers.geometry.pair_geometry`; False for that of the boxes.
        bert: sizes of a BERT below the language signal, as the transformers library's `BertConfig` names them, all of
            whose weights and of the signal's are then frozen, as in the released code; otherwise the signal has
            embeddings of its own, and learns.
        leak: let BERT see whole captions in teacher forcing, later words too, as in the released code: no word is then
            decoded as it was trained.
        quirks: reproduce faults of the released code: fixed tables of positions start Xavier-uniform, as random
            numbers; and padding is inferred from the embedded cells after their norm, which in single precision takes
            some valid ones for it.
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
        n_decoder_layers: int = 4,
        dropout: float = 0.1,
        max_len: int = 54,
        pixel_sizes: bool = True,
        bert: Mapping[str, int] | None = None,
        leak: bool = False,
        quirks: bool = False,
    ) -> None:
        if leak and bert is None:
            raise ZooError("leak is of BERT, and there is none", "give its sizes as bert, or set leak=False")

        def residual() -> InnerResidual:
            return InnerResidual(d_model, dropout)

        super().__init__(
            vocab_size=vocab_size,
            d_model=d_model,
            d_ff=d_ff,
            n_heads=n_heads,
            n_encoder_layers=n_encoder_layers,
            dropout=dropout,
            max_len=max_len,
            cross_attentions=(
                PlacedCrossAttention(d_model, n_heads, dropout=dropout, gate=residual())
                for _ in range(n_decoder_layers - 1)
            ),
        )
        adaptive = AdaptiveAttention(d_model, n_heads, gate=residual())
        mixer = word_mixer(d_model, n_heads, dropout)
        self.decoder_layers.append(AdaptiveDecoderLayer(mixer, adaptive, d_model, d_ff, dropout, post_norm=True))
        self.visual = VisualSpec("regions", visual_dim)
        self.quirks = quirks
        self.input = EmbeddedTokens(visual_dim, d_model, dropout)
        self.pair_weights = PairWeights(n_heads, pixel_sizes=pixel_sizes)
        self.encoder_layers = nn.ModuleList(
            encoder_layer(RelationAttention(d_model, n_heads, dropout=dropout, gate=residual()), d_model, d_ff, dropout)
            for _ in range(n_encoder_layers)
        )
        words = nn.Embedding(vocab_size, d_model) if bert is None else BertWords(d_model, dropout, whole=leak, **bert)
        positions = FixedPositions(sinusoids(max_len + 1, d_model), first=1, saved=True)
        self.language = LanguageSignal(
            words, positions, word_mixer(d_model, n_heads, dropout), d_model, d_ff, dropout
        ).requires_grad_(bert is None)
        self.start_weights(quirks=quirks)

    def encode(self, visual: Visual) -> Memory:
        """See `Captioner.encode`; the features (B, L, 2 D) hold the cells and the code of their places."""
        features, mask = visual.valid_features(self.input.linear.weight.dtype)
        if visual.boxes is None:
            raise ZooError("this model needs the boxes of its cells or regions, and got none")
        x = self.input(features)
        if self.quirks:
            x = x * (features.sum(-1, keepdim=True) != 0)
            mask = x.sum(-1) != 0
        boxes = whole_where_padded(visual.boxes, mask)
        code = corner_code(boxes, x.shape[-1]).to(x.dtype)
        weights = self.pair_weights(boxes, boxes)
        for layer in self.encoder_layers:
            x = layer(x, mask, code, weights)
        return Memory(torch.cat((x, code), -1), mask)

    def decode(self, memory: Memory, tokens: Tensor) -> Tensor:
        """See `Captioner.decode`."""
        x = self.embedding(tokens)
        barred, projected = self._look(memory)
        *plain, adaptive = self.decoder_layers
        for layer, (keys, values) in zip(plain, projected[:-1], strict=True):
            x = layer(x, keys, values, barred)
        x = adaptive(x, *projected[-1], barred, self.language(tokens))
        logits: Tensor = self.vocabulary(x)
        return logits

    def start(self, memory: Memory) -> DecodingState:
        """See `Captioner.start`."""
        state, mixer = super().start(memory), self.language.mixer
        rows = {_SIGNAL + name: entry for name, entry in mixer.start(memory.features).items()}
        shared = dict(zip((_SIGNAL + "weight", _SIGNAL + "bias"), mixer.projection(), strict=True))
        shared[_SIGNAL + "places"] = self.language.positions.rows()
        return replace(state, rows=state.rows | rows, shared=state.shared | shared)

    def step(self, tokens: Tensor, state: DecodingState) -> tuple[Tensor, DecodingState]:
        """See `Captioner.step`."""
        shared = state.shared
        seen = {name.removeprefix(_SIGNAL): row for name, row in state.rows.items() if name.startswith(_SIGNAL)}
        projection = shared[_SIGNAL + "weight"], shared[_SIGNAL + "bias"]
        places = shared[_SIGNAL + "places"]
        language, seen = self.language.step(tokens[:, None], places[0], seen, projection)
        logits, after = super().step(tokens, replace(state, rows={**state.rows, "language": language}))
        rows = after.rows | {_SIGNAL + name: row for name, row in seen.items()}
        return logits, replace(after, rows=rows, shared=after.shared | {_SIGNAL + "places": places[1:]})
