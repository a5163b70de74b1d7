"""BLIP: Bootstrapping Language-Image Pre-training (Li et al., ICML 2022, arXiv:2201.12086), as in transformers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from zoo.models.hub import load_network
from zoo.models.vision_language import KeysValues, Sizes, VisionLanguage, by_head, cross_attending

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Blip(VisionLanguage):
    """A vision transformer, and a BERT-like decoder with cross-attention to its tokens."""

    def load(self, folder: Path) -> PreTrainedModel:
        from transformers import BlipForConditionalGeneration

        return load_network(BlipForConditionalGeneration, folder)

    def build(self, sizes: Sizes) -> PreTrainedModel:
        from transformers import BlipConfig, BlipForConditionalGeneration

        vision = {**sizes.vision(), "initializer_range": 0.02}  # the library's 1e-10 suits loading weights alone
        text = {**sizes.text(), "encoder_hidden_size": sizes.d_model, "sep_token_id": None}
        return BlipForConditionalGeneration(BlipConfig(vision_config=vision, text_config=text))

    def text_config(self) -> Any:
        return self.network.config.text_config

    def begin_and_end(self) -> tuple[int, int]:
        config = self.text_config()
        return config.bos_token_id, config.sep_token_id

    def encode_image(self, pixels: Tensor) -> Tensor:
        tokens: Tensor = self.network.vision_model(pixels, interpolate_pos_encoding=True).last_hidden_state
        return tokens

    def image_keys_values(self, features: Tensor) -> KeysValues:
        attentions = [layer.crossattention.self for layer in self.network.text_decoder.bert.encoder.layer]
        return [by_head(each.key(features), each.value(features), each.num_attention_heads) for each in attentions]

    def cross_attention_modules(self) -> Sequence[nn.Module]:
        return [layer.crossattention for layer in self.network.text_decoder.bert.encoder.layer]

    def decode_tokens(self, tokens: Tensor, images: KeysValues, past: KeysValues | None) -> tuple[Tensor, KeysValues]:
        width = self.network.config.vision_config.hidden_size
        before = past[0][0].shape[2] if past else 0
        # The library would make it of numbers of the host, which a GPU waits for in some of its releases.
        later = torch.full((tokens.shape[1], before + tokens.shape[1]), -torch.inf, device=tokens.device)
        barrier = later.triu(before + 1)[None, None]
        return cross_attending(self.network.text_decoder, tokens, images, past, width, barrier)
