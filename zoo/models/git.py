"""GIT: A Generative Image-to-text Transformer (Wang et al., TMLR 2022, arXiv:2205.14100), as in transformers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from zoo.models.hub import load_network
from zoo.models.vision_language import KeysValues, Sizes, VisionLanguage, by_head, cached

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Git(VisionLanguage):
    """One transformer over visual tokens, which attend to each other, and words, which attend to all before them."""

    def load(self, folder: Path) -> PreTrainedModel:
        from transformers import GitForCausalLM

        return load_network(GitForCausalLM, folder)

    def build(self, sizes: Sizes) -> PreTrainedModel:
        from transformers import GitConfig, GitForCausalLM, GitVisionConfig

        return GitForCausalLM(GitConfig(vision_config=GitVisionConfig(**sizes.vision()), **sizes.text()))

    def text_config(self) -> Any:
        return self.network.config

    def begin_and_end(self) -> tuple[int, int]:
        config = self.network.config
        return config.bos_token_id, config.eos_token_id

    def encode_image(self, pixels: Tensor) -> Tensor:
        git = self.network.git
        projected: Tensor = git.visual_projection(
            git.image_encoder(pixels, interpolate_pos_encoding=True).last_hidden_state
        )
        return projected

    def image_keys_values(self, features: Tensor) -> KeysValues:
        """See `VisionLanguage.image_keys_values`: they do not depend on captions.

        Of the last layer only keys and values are computed, which is all that words attend to.
        """
        from transformers import DynamicCache

        cache = DynamicCache()
        *layers, last = self.network.git.encoder.layer
        for layer in layers:
            features = layer(features, None, cache)
        attention = last.attention.self
        last_pair = by_head(attention.key(features), attention.value(features), attention.num_attention_heads)
        return [*cached(cache), last_pair]

    def cross_attention_modules(self) -> Sequence[nn.Module]:
        """See `Captioner.cross_attention_modules`; words attend to the image and to each other at once."""
        return [layer.attention for layer in self.network.git.encoder.layer]

    def decode_tokens(self, tokens: Tensor, images: KeysValues, past: KeysValues | None) -> tuple[Tensor, KeysValues]:
        from transformers import DynamicCache

        seen = images[0][0].shape[2]
        before = images if past is None else [_joined(image, row) for image, row in zip(images, past, strict=True)]
        cache = DynamicCache(before)
        start, length = before[0][0].shape[2] - seen, tokens.shape[1]
        positions = torch.arange(start, start + length, device=tokens.device).expand_as(tokens)
        embedded = self.network.git.embeddings(input_ids=tokens, position_ids=positions)
        hidden = self.network.git.encoder(embedded, _causal(length, seen + start, embedded), cache).last_hidden_state
        words = [(keys[:, :, seen:], values[:, :, seen:]) for keys, values in cached(cache)]
        logits: Tensor = self.network.output(hidden)
        return logits, words


def _joined(image: tuple[Tensor, Tensor], row: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    return torch.cat((image[0], row[0]), 2), torch.cat((image[1], row[1]), 2)


def _causal(length: int, before: int, like: Tensor) -> Tensor:
    """(1, 1, T, before + T), added to attention scores: zero at visible positions, very negative elsewhere."""
    later = torch.ones(length, before + length, dtype=torch.bool, device=like.device).triu(before + 1)
    return like.new_zeros(later.shape).masked_fill(later, torch.finfo(like.dtype).min)[None, None]
