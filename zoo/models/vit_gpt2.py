"""ViT (Dosovitskiy et al., ICLR 2021) and GPT-2 (Radford et al. 2019) joined by cross-attention, as in transformers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor, nn

from zoo.models.hub import load_network
from zoo.models.vision_language import KeysValues, VisionLanguage, cross_attending, heads


class VitGpt2(VisionLanguage):
    """transformers' VisionEncoderDecoder of a ViT and a GPT-2.

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
        image_size: int = 224,
        patch_size: int = 16,
        d_model: int = 768,
        d_ff: int = 3072,
        n_heads: int = 12,
        n_encoder_layers: int = 12,
        n_decoder_layers: int = 12,
        dropout: float = 0.1,
        max_len: int = 64,
    ) -> None:
        from transformers import GPT2Config, GPT2LMHeadModel, VisionEncoderDecoderModel, ViTConfig, ViTModel

        if folder is not None:
            network = load_network(VisionEncoderDecoderModel, folder, unused="encoder.pooler.")
            network.get_submodule("encoder").pooler = None  # type: ignore[assignment]  # a weight without use
        else:
            vision = ViTConfig(
                hidden_size=d_model,
                intermediate_size=d_ff,
                num_hidden_layers=n_encoder_layers,
                num_attention_heads=n_heads,
                image_size=image_size,
                patch_size=patch_size,
            )
            text = GPT2Config(
                vocab_size=vocab_size,
                n_embd=d_model,
                n_inner=d_ff,
                n_layer=n_decoder_layers,
                n_head=n_heads,
                n_positions=max_len,
                resid_pdrop=dropout,
                embd_pdrop=dropout,
                attn_pdrop=dropout,
                add_cross_attention=True,
                bos_token_id=None,
                eos_token_id=None,
            )
            network = VisionEncoderDecoderModel(
                encoder=ViTModel(vision, add_pooling_layer=False), decoder=GPT2LMHeadModel(text)
            )
        super().__init__(network, vocab_size=network.config.decoder.vocab_size, max_len=max_len)

    def begin_and_end(self) -> tuple[int, int]:
        config = self.network.config
        begin = getattr(config, "decoder_start_token_id", None)
        end = getattr(config, "eos_token_id", None)
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
        pairs: KeysValues = []
        for block in self.network.decoder.transformer.h:
            attention = block.crossattention
            keys, values = attention.c_attn(features).chunk(2, -1)
            pairs.append((heads(keys, attention.num_heads), heads(values, attention.num_heads)))
        return pairs

    def cross_attention_modules(self) -> Sequence[nn.Module]:
        return [block.crossattention for block in self.network.decoder.transformer.h]

    def decode_tokens(self, tokens: Tensor, images: KeysValues, past: KeysValues | None) -> tuple[Tensor, KeysValues]:
        return cross_attending(self.network.decoder, tokens, images, past, self.network.config.decoder.n_embd)
