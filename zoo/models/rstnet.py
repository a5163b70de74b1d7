"""RSTNet: relation-enhanced encoding of a grid, and a decoder that tells visual from other words.

X. Zhang, X. Sun, Y. Luo, J. Ji, Y. Zhou, Y. Wu, F. Huang, R. Ji: "RSTNet: Captioning with Adaptive Attention on Visual
and Non-Visual Words", CVPR 2021, after J. Lu et al.: "Knowing When to Look", CVPR 2017. Code:
https://github.com/zhangxuying1004/RSTNet (BSD-3-Clause), whose BERT is frozen noise that sees later words in training,
and one word at a time in decoding: see `bert` and `leak`.
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
    """W BERT(words) + b; `sizes` are arguments of the transformers library's `BertConfig`.

    As the authors decode, each word stands alone at the first place. With `whole` BERT sees a whole caption at once,
    later words and padding too.
    """

    def __init__(self, d_model: int, dropout: float, *, whole: bool, **sizes: Any) -> None:
        from transformers import BertConfig, BertModel

        super().__init__()
        dropouts = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
        config = BertConfig(**{**dropouts, **sizes})
        self.bert = BertModel(config, add_pooling_layer=False)
        self.linear = nn.Linear(config.hidden_size, d_model)
        self.whole = whole

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens (R, T) to (R, T, D)."""
        seen = tokens if self.whole else tokens.reshape(-1, 1)
        hidden = self.bert(input_ids=seen, attention_mask=torch.ones_like(seen)).last_hidden_state
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

    def step(self, tokens: Tensor, place: Tensor, cache: Cache, projection: tuple[Tensor, ...]) -> tuple[Tensor, Cache]:
        """One position: tokens (R, 1), the position's row (D) of the table, the mixer's cache and its `projection`."""
        x = self.words(tokens) + place
        mixed, cache = self.mixer.step(x, self.mixer.widen(cache), projection)
        return self.feed_forward_branch(self.add_branch(x, mixed, self.mixer_norm)), cache


class LanguageAwareAttention(PlacedCrossAttention):
    """Attention to the visual tokens and to one language token of the word's own, its key and value alike."""

    def __init__(self, d_model: int, n_heads: int, *, gate: nn.Module) -> None:
        super().__init__(d_model, n_heads, gate=gate)
        self.signal = nn.Linear(d_model, d_model)

    def forward(  # type: ignore[override]
        self, queries: Tensor, keys: Tensor, values: Tensor, attention_bias: Tensor, language: Tensor
    ) -> Tensor:
        """See `MultiHeadAttention.forward`; the bias is of `mask_to_bias`, `language` (B * n, T, D) of each word."""
        images, width = keys.shape[0], queries.shape[-1]
        heads = self._heads(self.query(queries).view(images, -1, width)) * (width // self.n_heads) ** -0.5
        words = self._heads(self.signal(language).view(images, -1, width))
        scores = torch.cat((heads @ keys.transpose(-1, -2) + attention_bias, (heads * words).sum(-1, keepdim=True)), -1)
        weights = F.softmax(scores, -1)
        answer = weights[..., :-1] @ values + weights[..., -1:] * words
        return self._output(answer, queries)


class AdaptiveDecoderLayer(DecoderLayer):
    """A post-norm decoder layer with `LanguageAwareAttention`, whose context is the `language` of each word."""

    def step(
        self, x: Tensor, keys: Tensor, values: Tensor, memory_mask: Tensor, cache: Cache, projection: tuple[Tensor, ...]
    ) -> tuple[Tensor, Cache]:
        """See `DecoderLayer.step`; the cache holds the `language` of the position too."""
        language = cache["language"]
        mixed, cache = self.mixer.step(x, cache, projection)
        return self.after_mixer(x, mixed, keys, values, memory_mask, language), cache


_SIGNAL = "language."


class RSTNet(DoublyResidualCaptioner):
    """Cells with their places and geometry through the encoder; a last decoder layer that sees a language signal too.

    Args:
        n_decoder_layers: with the adaptive one, which is the last.
        dropout: on embedded cells and probabilities, in every feed-forward and on every branch.
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
        words = nn.Embedding(vocab_size, d_model) if bert is None else BertWords(d_model, dropout, whole=leak, **bert)
        positions = FixedPositions(sinusoids(max_len + 1, d_model), first=1, saved=True)
        self.language = LanguageSignal(
            words, positions, word_mixer(d_model, n_heads, dropout), d_model, d_ff, dropout
        ).requires_grad_(bert is None)
        self.init_weights(quirks=quirks)

    def encode(self, visual: Visual) -> Memory:
        """See `Captioner.encode`; the features (B, L, 2 D) hold the cells and the code of their places."""
        features, mask = visual.valid_features(self.input.linear.weight.dtype)
        if visual.boxes is None:
            raise ZooError("this model needs the boxes of its cells or regions, and got none")
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
        *plain, adaptive = self.decoder_layers
        for layer, (keys, values) in zip(plain, projected[:-1], strict=True):
            x = layer(x, keys, values, attention_bias)
        x = adaptive(x, *projected[-1], attention_bias, self.language(tokens))
        logits: Tensor = self.vocabulary(x)
        return logits

    def start(self, memory: Memory) -> DecodingState:
        state, mixer = super().start(memory), self.language.mixer
        rows = {_SIGNAL + name: entry for name, entry in mixer.start(memory.features).items()}
        shared = dict(zip((_SIGNAL + "weight", _SIGNAL + "bias"), mixer.projection(), strict=True))
        shared[_SIGNAL + "places"] = self.language.positions.rows()
        return replace(state, rows=state.rows | rows, shared=state.shared | shared)

    def step(self, tokens: Tensor, state: DecodingState) -> tuple[Tensor, DecodingState]:
        shared = state.shared
        seen = {name.removeprefix(_SIGNAL): row for name, row in state.rows.items() if name.startswith(_SIGNAL)}
        projection = shared[_SIGNAL + "weight"], shared[_SIGNAL + "bias"]
        places = shared[_SIGNAL + "places"]
        language, seen = self.language.step(tokens[:, None], places[0], seen, projection)
        logits, after = super().step(tokens, replace(state, rows={**state.rows, "language": language}))
        rows = after.rows | {_SIGNAL + name: row for name, row in seen.items()}
        return logits, replace(after, rows=rows, shared=after.shared | {_SIGNAL + "places": places[1:]})


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
        """Sizes of the language model's BERT, with its usual heads of 64 channels."""
        where = {
            "vocab_size": (f"{_BERT}embeddings.word_embeddings.weight", 0),
            "hidden_size": (f"{_BERT}embeddings.word_embeddings.weight", 1),
            "max_position_embeddings": (f"{_BERT}embeddings.position_embeddings.weight", 0),
            "intermediate_size": (f"{_BERT}encoder.layer.0.intermediate.dense.weight", 0),
        }
        sizes = self.read_sizes(official, where)
        layers, heads = count_layers(official, f"{_BERT}encoder.layer"), max(sizes["hidden_size"] // _BERT_HEAD, 1)
        return {**sizes, "num_hidden_layers": layers, "num_attention_heads": heads}


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
    # States, and what no caption comes through.
    unused=rf"{STATES}|\.pooler\.|\.position_ids$|\.proj_to_vocab\.",
    size_axes={**SIZES, "visual_dim": ("encoder.fc.weight", 1)},
    stacks=STACKS,
    fixed={"quirks": True},
    padded_positions=True,
    hint=HINT,
)
"""Weights of the authors' code, trained with its faults: see `zoo.shared_official_names.meshed_memory`.

Shapes do not determine the heads of BERT; `leak=False` trains as words are decoded.
"""
