"""BLIP: Bootstrapping Language-Image Pre-training (Li et al., ICML 2022, arXiv:2201.12086), as in transformers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor, nn

from zoo.models.hub import load_network
from zoo.models.vision_language import KeysValues, VisionLanguage, cross_attending, heads


class Blip(VisionLanguage):
    """A vision transformer, and a BERT-like decoder with cross-attention to its tokens.

    Args:
        vocab_size: V; with `folder`, that of its tokenizer.
        folder: of a pretrained model, whose sizes replace the arguments.
        image_size: side of the images of the position embeddings, which are interpolated for others.
        patch_size: side of a visual token, in pixels.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        folder: Path | None = None,
        image_size: int = 384,
        patch_size: int = 16,
        d_model: int = 768,
        d_ff: int = 3072,
        n_heads: int = 12,
        n_encoder_layers: int = 12,
        n_decoder_layers: int = 12,
        dropout: float = 0.0,
        max_len: int = 64,
    ) -> None:
        from transformers import BlipConfig, BlipForConditionalGeneration

        if folder is not None:
            network = load_network(BlipForConditionalGeneration, folder)
        else:
            sizes = {"hidden_size": d_model, "intermediate_size": d_ff, "num_attention_heads": n_heads}
            vision = {
                **sizes,
                "num_hidden_layers": n_encoder_layers,
                "image_size": image_size,
                "patch_size": patch_size,
                "initializer_range": 0.02,  # the library's 1e-10 suits loading weights alone
            }
            text = {
                **sizes,
                "encoder_hidden_size": d_model,
                "num_hidden_layers": n_decoder_layers,
                "vocab_size": vocab_size,
                "hidden_dropout_prob": dropout,
                "attention_probs_dropout_prob": dropout,
                "max_position_embeddings": max_len,
                "bos_token_id": None,
                "eos_token_id": None,
                "sep_token_id": None,
            }
            network = BlipForConditionalGeneration(BlipConfig(vision_config=vision, text_config=text))
        super().__init__(network, vocab_size=network.config.text_config.vocab_size, max_len=max_len)

    def begin_and_end(self) -> tuple[int, int]:
        config = self.network.config.text_config
        return config.bos_token_id, config.sep_token_id

    def encode_image(self, pixels: Tensor) -> Tensor:
        tokens: Tensor = self.network.vision_model(pixels, interpolate_pos_encoding=True).last_hidden_state
        return tokens

    def image_keys_values(self, features: Tensor) -> KeysValues:
        attentions = [layer.crossattention.self for layer in self.network.text_decoder.bert.encoder.layer]
        return [
            (heads(each.key(features), each.num_attention_heads), heads(each.value(features), each.num_attention_heads))
            for each in attentions
        ]

    def cross_attention_modules(self) -> Sequence[nn.Module]:
        return [layer.crossattention for layer in self.network.text_decoder.bert.encoder.layer]

    def decode_tokens(self, tokens: Tensor, images: KeysValues, past: KeysValues | None) -> tuple[Tensor, KeysValues]:
        width = self.network.config.vision_config.hidden_size
        return cross_attending(self.network.text_decoder, tokens, images, past, width)
