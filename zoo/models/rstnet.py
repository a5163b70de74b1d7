"""RSTNet: relation-enhanced encoding of a grid, and a decoder with adaptive attention to image and language.

X. Zhang, X. Sun, Y. Luo, J. Ji, Y. Zhou, Y. Wu, F. Huang, R. Ji: "RSTNet: Captioning with Adaptive Attention on Visual
and Non-Visual Words", CVPR 2021, after J. Lu et al.: "Knowing When to Look", CVPR 2017. Code:
https://github.com/zhangxuying1004/RSTNet (BSD-3-Clause). Its BERT has frozen random weights, and reads later words in
training but only single words in decoding: see `bert` and `leak`.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.captioner import DecodingState, Memory, Visual, VisualSpec
from zoo.converter import Converter, Tensors, count_layers
from zoo.errors import ZooError
from zoo.layers.attention import SelfAttention
from zoo.layers.cache import Cache
from zoo.layers.embedding import FixedPositions, sinusoids
from zoo.layers.geometry import PairWeights, PlacedCrossAttention, RelationAttention, corner_code, fill_padded_boxes
from zoo.layers.residual import DecoderLayer, EncoderLayer, ResidualLayer
from zoo.models.doubly_residual import DoublyResidualCaptioner, EmbeddedTokens, InnerResidual, word_mixer
from zoo.shared_official_names.meshed_memory import (
    DOUBLY_RESIDUAL,
    HINT,
    NAMES,
    SIZES,
    STACKS,
    STATES,
    join_pair_weights,
)


class BertWords(nn.Module):
    """W BERT(words) + b.

    Args:
        whole_captions: whether BERT reads a whole caption at once, including later words and padding. Otherwise each
            word is a sequence of its own, as the authors decode.
        sizes: arguments of the transformers library's `BertConfig`.
    """

    def __init__(self, d_model: int, dropout: float, *, whole_captions: bool, **sizes: Any) -> None:
        from transformers import BertConfig, BertModel

        super().__init__()
        dropouts = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
        config = BertConfig(**{**dropouts, **sizes})
        self.bert = BertModel(config, add_pooling_layer=False)
        self.linear = nn.Linear(config.hidden_size, d_model)
        self.whole_captions = whole_captions

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens (R, T) to (R, T, D)."""
        sequences = tokens if self.whole_captions else tokens.reshape(-1, 1)
        hidden = self.bert(input_ids=sequences, attention_mask=torch.ones_like(sequences)).last_hidden_state
        features: Tensor = self.linear(hidden.view(*tokens.shape, -1))
        return features


class LanguageSignal(ResidualLayer):
    """One layer of causal self-attention over words, with embeddings of its own."""

    def __init__(
        self, words: nn.Module, positions: FixedPositions, mixer: SelfAttention, d_model: int, d_ff: int, dropout: float
    ) -> None:
        super().__init__(dropout, post_norm=True)
        self.words = words
        self.positions = positions
        self.mixer_norm = nn.LayerNorm(d_model)
        self.mixer = mixer
        self.build_feed_forward(d_model, d_ff, nn.LayerNorm)

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens (R, T) to (R, T, D)."""
        x = self.words(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        return self.feed_forward_branch(self.add_branch(x, self.mixer(x), self.mixer_norm))

    def step(
        self, tokens: Tensor, position: Tensor, cache: Cache, projection: tuple[Tensor, ...]
    ) -> tuple[Tensor, Cache]:
        """One position: tokens (R, 1), the embedding of the position (D), cache and `projection` of the mixer."""
        x = self.words(tokens) + position
        mixed, cache = self.mixer.step(x, self.mixer.widen(cache), projection)
        return self.feed_forward_branch(self.add_branch(x, mixed, self.mixer_norm)), cache


class LanguageAwareAttention(PlacedCrossAttention):
    """Attention to the visual tokens and to the word's own language token, whose key is also its value."""

    def __init__(self, d_model: int, n_heads: int, *, gate: nn.Module) -> None:
        super().__init__(d_model, n_heads, gate=gate)
        self.signal = nn.Linear(d_model, d_model)

    def forward(  # type: ignore[override]
        self, queries: Tensor, keys: Tensor, values: Tensor, attention_bias: Tensor, language: Tensor
    ) -> Tensor:
        """See `MultiHeadAttention.forward`.

        Args:
            attention_bias: from `mask_to_bias`.
            language: (B * n, T, D), the language token of each word.
        """
        images = keys.shape[0]
        width = queries.shape[-1]
        heads = self._heads(self.query(queries).view(images, -1, width)) * (width // self.n_heads) ** -0.5
        words = self._heads(self.signal(language).view(images, -1, width))
        visual_scores = heads @ keys.transpose(-1, -2) + attention_bias
        weights = F.softmax(torch.cat((visual_scores, (heads * words).sum(-1, keepdim=True)), -1), -1)
        attended = weights[..., :-1] @ values + weights[..., -1:] * words
        return self._output(attended, queries)


class AdaptiveDecoderLayer(DecoderLayer):
    """A post-norm decoder layer with `LanguageAwareAttention`, whose context is the `language` of each word."""

    def step(
        self, x: Tensor, keys: Tensor, values: Tensor, memory_mask: Tensor, cache: Cache, projection: tuple[Tensor, ...]
    ) -> tuple[Tensor, Cache]:
        """See `DecoderLayer.step`; the cache also has the `language` token of the position."""
        language = cache["language"]
        mixed, cache = self.mixer.step(x, cache, projection)
        return self.after_mixer(x, mixed, keys, values, memory_mask, language), cache


_SIGNAL = "language."  # prefix of the language signal's tensors in a `DecodingState`


class RSTNet(DoublyResidualCaptioner):
    """An encoder of cells with positions and pair geometry; the last decoder layer also attends to a language signal.

    Args:
        n_decoder_layers: including the adaptive layer, which is the last.
        dropout: on embedded cells and probabilities, in every feed-forward and on every branch.
        pixel_sizes: geometry as released, see `zoo.layers.geometry.pair_geometry`; False for that of the boxes.
        bert: arguments of the transformers library's `BertConfig`, for a BERT below the language signal; BERT and the
            signal are then frozen, as in the released code. Without it, the signal has trained word embeddings.
        leak: let BERT read whole captions, including later words, in teacher forcing, as in the released code. Decoding
            then differs from training.
        quirks: reproduce faults of the released code: fixed tables of positions start Xavier-uniform, as random
            numbers; and padding is inferred from the embedded cells after their norm, where in single precision some
            valid cells count as padding.
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
            raise ZooError("leak=True needs a BERT", "pass its sizes as bert, or set leak=False")

        def residual() -> InnerResidual:
            return InnerResidual(d_model, dropout)

        cross = (
            PlacedCrossAttention(d_model, n_heads, dropout=dropout, gate=residual())
            for _ in range(n_decoder_layers - 1)
        )
        visual = VisualSpec("regions", visual_dim)
        super().__init__(visual, vocab_size, max_len, d_model, d_ff, n_heads, dropout, cross)
        adaptive = LanguageAwareAttention(d_model, n_heads, gate=residual())
        mixer = word_mixer(d_model, n_heads, dropout)
        self.decoder_layers.append(AdaptiveDecoderLayer(mixer, adaptive, d_model, d_ff, dropout, post_norm=True))
        self.quirks = quirks
        self.input = EmbeddedTokens(visual_dim, d_model, dropout)
        self.pair_weights = PairWeights(n_heads, pixel_sizes=pixel_sizes)
        self.encoder_layers = nn.ModuleList()
        for _ in range(n_encoder_layers):
            relations = RelationAttention(d_model, n_heads, dropout=dropout, gate=residual())
            self.encoder_layers.append(EncoderLayer(relations, d_model, d_ff, dropout, post_norm=True))
        if bert is None:
            words: nn.Module = nn.Embedding(vocab_size, d_model)
        else:
            words = BertWords(d_model, dropout, whole_captions=leak, **bert)
        positions = FixedPositions(sinusoids(max_len + 1, d_model), first=1, saved=True)
        mixer = word_mixer(d_model, n_heads, dropout)
        self.language = LanguageSignal(words, positions, mixer, d_model, d_ff, dropout)
        self.language.requires_grad_(bert is None)
        self.init_weights(quirks=quirks)

    def encode(self, visual: Visual) -> Memory:
        """See `Captioner.encode`; the features (B, L, 2 D) are the cells and their position codes."""
        features, mask = visual.valid_features(self.input.linear.weight.dtype)
        if visual.boxes is None:
            raise ZooError("this model needs the boxes of its cells or regions, but the input has none")
        x = self.input(features)
        if self.quirks:
            x = x * (features.sum(-1, keepdim=True) != 0)
            mask = x.sum(-1) != 0
        boxes = fill_padded_boxes(visual.boxes, mask)
        code = corner_code(boxes, x.shape[-1]).to(x.dtype)
        weights = self.pair_weights(boxes, boxes)
        for layer in self.encoder_layers:
            x = layer(x, mask, code, weights)
        return Memory(torch.cat((x, code), -1), mask)

    def decode(self, memory: Memory, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        attention_bias, projected = self._project_memory(memory)
        *layers, adaptive_layer = self.decoder_layers
        for layer, (keys, values) in zip(layers, projected[:-1], strict=True):
            x = layer(x, keys, values, attention_bias)
        x = adaptive_layer(x, *projected[-1], attention_bias, self.language(tokens))
        logits: Tensor = self.vocabulary(x)
        return logits

    def start(self, memory: Memory) -> DecodingState:
        state = super().start(memory)
        mixer = self.language.mixer
        rows = {_SIGNAL + name: tensor for name, tensor in mixer.start(memory.features).items()}
        weight, bias = mixer.projection()
        positions = self.language.positions.rows()
        shared = {_SIGNAL + "weight": weight, _SIGNAL + "bias": bias, _SIGNAL + "positions": positions}
        return replace(state, rows=state.rows | rows, shared=state.shared | shared)

    def step(self, tokens: Tensor, state: DecodingState) -> tuple[Tensor, DecodingState]:
        shared = state.shared
        cache = {name.removeprefix(_SIGNAL): row for name, row in state.rows.items() if name.startswith(_SIGNAL)}
        projection = shared[_SIGNAL + "weight"], shared[_SIGNAL + "bias"]
        positions = shared[_SIGNAL + "positions"]
        language, cache = self.language.step(tokens[:, None], positions[0], cache, projection)
        logits, new_state = super().step(tokens, replace(state, rows={**state.rows, "language": language}))
        rows = new_state.rows | {_SIGNAL + name: row for name, row in cache.items()}
        shared = new_state.shared | {_SIGNAL + "positions": positions[1:]}
        return logits, replace(new_state, rows=rows, shared=shared)


_LANGUAGE = "decoder.language_model."
_BERT = f"{_LANGUAGE}language_model."
_BERT_HEAD = 64


class _RSTNetConverter(Converter):
    def tensors(self, official: Mapping[str, Tensor]) -> Tensors:
        return super().tensors(join_pair_weights(official))

    def sizes(self, official: Mapping[str, Tensor]) -> dict[str, Any]:
        sizes = super().sizes(official)
        if any(key.startswith(_LANGUAGE) for key in official):
            sizes |= {"bert": self._bert_sizes(official), "leak": True}
        return sizes

    def _bert_sizes(self, official: Mapping[str, Tensor]) -> dict[str, int]:
        """Sizes of the language model's BERT, with heads of 64 channels, as usual for BERT."""
        size_axes = {
            "vocab_size": (f"{_BERT}embeddings.word_embeddings.weight", 0),
            "hidden_size": (f"{_BERT}embeddings.word_embeddings.weight", 1),
            "max_position_embeddings": (f"{_BERT}embeddings.position_embeddings.weight", 0),
            "intermediate_size": (f"{_BERT}encoder.layer.0.intermediate.dense.weight", 0),
        }
        sizes = self.read_sizes(official, size_axes)
        n_layers = count_layers(official, f"{_BERT}encoder.layer")
        n_heads = max(sizes["hidden_size"] // _BERT_HEAD, 1)
        return {**sizes, "num_hidden_layers": n_layers, "num_attention_heads": n_heads}


CONVERTER = _RSTNetConverter(
    source="RSTNet",
    renames=(
        (r"^decoder\.language_model\.language_model\b", "language.words.bert"),
        (r"^decoder\.language_model\.proj_to_caption_model\b", "language.words.linear"),
        (r"^decoder\.language_model\.pos_emb\.weight\b", "language.positions.table"),
        (r"^decoder\.language_model\.(?:encoder_layer\.)?", "language."),
        (r"^encoder\.fc\b", "input.linear"),
        (r"^encoder\.layer_norm\b", "input.norm"),
        *NAMES,
        *DOUBLY_RESIDUAL,
        (r"\bfc_s\b", "signal"),
    ),
    # States of decoding, and parts that captions do not depend on.
    unused=rf"{STATES}|\.pooler\.|\.position_ids$|\.proj_to_vocab\.",
    size_axes={**SIZES, "visual_dim": ("encoder.fc.weight", 1)},
    stacks=STACKS,
    fixed={"quirks": True},
    padded_positions=True,
    hint=HINT,
)
"""Weights of the authors' code, trained with its faults: see `zoo.shared_official_names.meshed_memory`.

Shapes do not determine the number of BERT's heads; `leak=False` trains with the computation of decoding.
"""
