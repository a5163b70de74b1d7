"""ViT (Dosovitskiy et al., ICLR 2021) and GPT-2 (Radford et al. 2019) joined by cross-attention, as in transformers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from zoo.models.hub import load_network
from zoo.models.vision_language import KeysValues, Sizes, VisionLanguage, by_head, cross_attending

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class VitGpt2(VisionLanguage):
    """transformers' VisionEncoderDecoder of a ViT and a GPT-2."""

    def load(self, folder: Path) -> PreTrainedModel:
        from transformers import VisionEncoderDecoderModel

        network = load_network(VisionEncoderDecoderModel, folder, unused="encoder.pooler.")
        network.get_submodule("encoder").pooler = None  # type: ignore[assignment]  # a weight without use
        words: Any = network.get_submodule("decoder.transformer")
        words.config.pad_token_id = None  # of which the library would ask at every pass whether it comes
        return network

    def build(self, sizes: Sizes) -> PreTrainedModel:
        from transformers import GPT2Config, GPT2LMHeadModel, VisionEncoderDecoderModel, ViTConfig, ViTModel

        text = GPT2Config(
            vocab_size=sizes.vocab_size,
            n_embd=sizes.d_model,
            n_inner=sizes.d_ff,
            n_layer=sizes.n_decoder_layers,
            n_head=sizes.n_heads,
            n_positions=sizes.max_len,
            resid_pdrop=sizes.dropout,
            embd_pdrop=sizes.dropout,
            attn_pdrop=sizes.dropout,
            add_cross_attention=True,
            bos_token_id=None,
            eos_token_id=None,
        )
        encoder = ViTModel(ViTConfig(**sizes.vision()), add_pooling_layer=False)
        return VisionEncoderDecoderModel(encoder=encoder, decoder=GPT2LMHeadModel(text))

    def text_config(self) -> Any:
        return self.network.config.decoder

    def begin_and_end(self) -> tuple[int, int]:
        config = self.network.config
        begin, end = (getattr(config, name, None) for name in ("decoder_start_token_id", "eos_token_id"))
        return (
            config.decoder.bos_token_id if begin is None else begin,
            config.decoder.eos_token_id if end is None else end,
        )

    def encode_image(self, pixels: Tensor) -> Tensor:
        tokens: Tensor = self.network.encoder(pixels, interpolate_pos_encoding=True).last_hidden_state
        if hasattr(self.network, "enc_to_dec_proj"):
            tokens = self.network.enc_to_dec_proj(tokens)
        return tokens

    def image_keys_values(self, features: Tensor) -> KeysValues:
        attentions = [block.crossattention for block in self.network.decoder.transformer.h]
        pairs = ((each.c_attn(features).chunk(2, -1), each.num_heads) for each in attentions)
        return [by_head(keys, values, count) for (keys, values), count in pairs]

    def cross_attention_modules(self) -> Sequence[nn.Module]:
        return [block.crossattention for block in self.network.decoder.transformer.h]

    def decode_tokens(self, tokens: Tensor, images: KeysValues, past: KeysValues | None) -> tuple[Tensor, KeysValues]:
        return cross_attending(self.network.decoder, tokens, images, past, self.network.config.decoder.n_embd)
