"""A language model beside the decoder, and attention that chooses at each word between it and the image.

X. Zhang, X. Sun, Y. Luo, J. Ji, Y. Zhou, Y. Wu, F. Huang, R. Ji: "RSTNet: Captioning with Adaptive Attention on Visual
and Non-Visual Words", CVPR 2021, after J. Lu et al.: "Knowing When to Look", CVPR 2017.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.layers.attention import SelfAttention
from zoo.layers.cache import Cache
from zoo.layers.embedding import FixedPositions
from zoo.layers.relation_attention import PlacedCrossAttention
from zoo.layers.residual import DecoderLayer, ResidualLayer


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
        self.add_feed_forward(d_model, d_ff, nn.LayerNorm)

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens (R, T) to (R, T, D)."""
        x = self.words(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        return self.feed(self.leave(x, self.mixer(x), self.mixer_norm))

    def step(self, tokens: Tensor, place: Tensor, cache: Cache, projection: tuple[Tensor, ...]) -> tuple[Tensor, Cache]:
        """One position: tokens (R, 1), the position's row (D) of the table, the mixer's cache and its `projection`."""
        x = self.words(tokens) + place
        mixed, cache = self.mixer.step(x, self.mixer.widen(cache), projection)
        return self.feed(self.leave(x, mixed, self.mixer_norm)), cache


class AdaptiveAttention(PlacedCrossAttention):
    """Attention to the visual tokens and to one language token of the word's own, its key and value alike."""

    def __init__(self, d_model: int, n_heads: int, *, gate: nn.Module) -> None:
        super().__init__(d_model, n_heads, gate=gate)
        self.signal = nn.Linear(d_model, d_model)

    def forward(  # type: ignore[override]
        self, queries: Tensor, keys: Tensor, values: Tensor, barred: Tensor, language: Tensor
    ) -> Tensor:
        """See `MultiHeadAttention.forward`; `barred` is of `barrier`, `language` (B * n, T, D) of each word."""
        images, width = keys.shape[0], queries.shape[-1]
        heads = self._heads(self.query(queries).view(images, -1, width)) * (width // self.n_heads) ** -0.5
        words = self._heads(self.signal(language).view(images, -1, width))
        scores = torch.cat((heads @ keys.transpose(-1, -2) + barred, (heads * words).sum(-1, keepdim=True)), -1)
        weights = F.softmax(scores, -1)
        answer = weights[..., :-1] @ values + weights[..., -1:] * words
        return self._merge(answer, queries)


class AdaptiveDecoderLayer(DecoderLayer):
    """A post-norm decoder layer with `AdaptiveAttention`."""

    cross_attention: AdaptiveAttention

    def forward(  # type: ignore[override]
        self, x: Tensor, keys: Tensor, values: Tensor, barred: Tensor, language: Tensor
    ) -> Tensor:
        """(B * n, T, D) to the same; see `DecoderLayer.forward`."""
        return self._adapt(x, self.mixer(x), keys, values, barred, language)

    def step(
        self,
        x: Tensor,
        keys: Tensor,
        values: Tensor,
        memory_mask: Tensor,
        cache: Cache,
        projection: tuple[Tensor, ...],
    ) -> tuple[Tensor, Cache]:
        """See `DecoderLayer.step`; the cache holds the `language` of the position too."""
        language = cache["language"]
        mixed, cache = self.mixer.step(x, cache, projection)
        return self._adapt(x, mixed, keys, values, memory_mask, language), cache

    def _adapt(
        self, x: Tensor, mixed: Tensor, keys: Tensor, values: Tensor, barred: Tensor, language: Tensor
    ) -> Tensor:
        x = self.leave(x, mixed, self.mixer_norm)
        looked = self.cross_attention(x, keys, values, barred, language)
        return self.feed(self.leave(x, looked, self.cross_norm))
