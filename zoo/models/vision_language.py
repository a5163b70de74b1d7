"""Vision-language models of the transformers library as captioners, decoded by the zoo's own searches.

Their key-value caches become decoding states: entries of an image are stored once, entries of a beam are reordered.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from zoo.captioner import Captioner, DecodingState, Memory, Visual, VisualSpec
from zoo.errors import ZooError
from zoo.layers.attention import split_heads
from zoo.models.hub import load_network

if TYPE_CHECKING:
    from transformers import PreTrainedModel

KeysValues = list[tuple[Tensor, Tensor]]


class VisionLanguage(Captioner):
    """A network of the transformers library on pixels, pretrained or with random weights.

    Args:
        vocab_size: V; with `folder`, that of its tokenizer.
        folder: of a pretrained model, whose sizes replace the arguments.
        image_size: side of the images of the position embeddings, which are interpolated for others.
        patch_size: side of a visual token, in pixels.
    """

    n_prefix_tokens = 1  # the class token of their vision transformers

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
        super().__init__()
        widths = {"hidden_size": d_model, "intermediate_size": d_ff, "num_attention_heads": n_heads}
        vision = {"num_hidden_layers": n_encoder_layers, "image_size": image_size, "patch_size": patch_size}
        text = {
            "num_hidden_layers": n_decoder_layers,
            "vocab_size": vocab_size,
            "hidden_dropout_prob": dropout,
            "attention_probs_dropout_prob": dropout,
            "max_position_embeddings": max_len,
            "bos_token_id": None,
            "eos_token_id": None,
        }
        self.network: Any = self.build(widths | vision, widths | text) if folder is None else self.load(folder)
        self.visual = VisualSpec("pixels", 0)
        self.vocab_size = self.text_config().vocab_size
        self.max_len = max_len
        self._same = _shared_names(self)
        self.register_state_dict_post_hook(_leave_out_copies)  # type: ignore[no-untyped-call]
        self.register_load_state_dict_pre_hook(_put_back_copies)  # type: ignore[no-untyped-call]

    @abstractmethod
    def build(self, vision: dict[str, Any], text: dict[str, Any]) -> PreTrainedModel:
        """The network with random weights.

        Args:
            vision: arguments of the library's configurations of vision transformers.
            text: of those of decoders like BERT, without special tokens.
        """

    @abstractmethod
    def load(self, folder: Path) -> PreTrainedModel:
        """The network in a folder, see `zoo.models.hub.load_network`."""

    @abstractmethod
    def text_config(self) -> Any:
        """The configuration of the part that words come from."""

    @abstractmethod
    def begin_and_end(self) -> tuple[int, int]:
        """Numbers of the begin and end tokens in the pretrained model's own vocabulary."""

    @abstractmethod
    def encode_image(self, pixels: Tensor) -> Tensor:
        """Pixels (B, 3, H, W) to visual tokens (B, L, D)."""

    @abstractmethod
    def image_keys_values(self, features: Tensor) -> KeysValues:
        """Keys and values of the images that words attend to: one pair (B, H, L, d_k) per layer."""

    @abstractmethod
    def decode_tokens(self, tokens: Tensor, images: KeysValues, past: KeysValues | None) -> tuple[Tensor, KeysValues]:
        """Tokens (R, T) after those of `past`, all with R rows, to logits (R, T, V) and the new past."""

    def encode(self, visual: Visual) -> Memory:
        if visual.pixels is None:
            raise ZooError("this model needs pixels, and got none")
        features = self.encode_image(visual.pixels.to(next(self.parameters()).dtype))
        extra = {
            f"{part}.{layer}": tensor
            for layer, pair in enumerate(self.image_keys_values(features))
            for part, tensor in zip(("keys", "values"), pair, strict=True)
        }
        return Memory(features, features.new_ones(features.shape[:2]).bool(), extra)

    def decode(self, memory: Memory, tokens: Tensor) -> Tensor:
        if tokens.shape[1] > self.max_len:
            raise ZooError(f"a caption of {tokens.shape[1]} tokens is longer than max_len {self.max_len}")
        return self.decode_tokens(tokens, _layers(memory.extra, tokens.shape[0]), None)[0]

    def start(self, memory: Memory) -> DecodingState:
        rows = {name: tensor[:, :, :0] for name, tensor in memory.extra.items()}
        return DecodingState(images=memory.extra, rows=rows)

    def step(self, tokens: Tensor, state: DecodingState) -> tuple[Tensor, DecodingState]:
        rows = tokens.shape[0]
        logits, past = self.decode_tokens(tokens[:, None], _layers(state.images, rows), _layers(state.rows, rows))
        new = {f"{part}.{layer}": pair[part == "values"] for layer, pair in enumerate(past) for part in _PARTS}
        return logits[:, -1], DecodingState(state.images, new)


_PARTS = ("keys", "values")


def _shared_names(module: nn.Module) -> dict[str, str]:
    """Names of tied parameters by the name under which each is stored."""
    first: dict[int, str] = {}
    same = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        kept = first.setdefault(id(parameter), name)
        if kept != name:
            same[name] = kept
    return same


def _leave_out_copies(module: VisionLanguage, state_dict: dict[str, Tensor], prefix: str, _: Any) -> None:
    """Store a tied parameter once, as safetensors requires."""
    for name in module._same:
        del state_dict[prefix + name]


def _put_back_copies(module: VisionLanguage, state_dict: dict[str, Tensor], prefix: str, *_: Any) -> None:
    for name, kept in module._same.items():
        if prefix + kept in state_dict:  # else it is told as missing
            state_dict[prefix + name] = state_dict[prefix + kept]


def _layers(tensors: dict[str, Tensor], rows: int) -> KeysValues:
    """The pairs by layer, repeated for the rows of each image."""

    def repeated(name: str) -> Tensor:
        tensor = tensors[name]
        return tensor if tensor.shape[0] == rows else tensor.repeat_interleave(int(rows // tensor.shape[0]), 0)

    return [(repeated(f"keys.{layer}"), repeated(f"values.{layer}")) for layer in range(len(tensors) // 2)]


def _by_head(keys: Tensor, values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """(B, L, D) to (B, H, L, d_k) each."""
    return split_heads(keys, count), split_heads(values, count)


def _cached(cache: Any) -> KeysValues:
    """The content of a transformers cache, layer by layer."""
    return [(layer.keys, layer.values) for layer in cache.layers]


def _cross_attending(
    decoder: nn.Module,
    tokens: Tensor,
    images: KeysValues,
    past: KeysValues | None,
    width: int,
    attention_bias: Tensor | None = None,
) -> tuple[Tensor, KeysValues]:
    """`VisionLanguage.decode_tokens` for a text decoder with cross-attention to the images.

    Args:
        decoder: a causal language model of transformers with cross-attention.
        width: channels of the visual tokens, which the decoder requires even though keys and values are cached.
        attention_bias: (1, 1, T, S), added to the scores of all S words so far; without it, the decoder's own.
    """
    from transformers import DynamicCache, EncoderDecoderCache

    cache = EncoderDecoderCache(DynamicCache(past) if past else DynamicCache(), DynamicCache(images))
    rows, length = tokens.shape[0], images[0][0].shape[2]
    output = decoder(
        input_ids=tokens,
        attention_mask=attention_bias,
        encoder_hidden_states=images[0][0].new_zeros(1, 1, 1).expand(rows, length, width),
        past_key_values=cache,
        use_cache=True,
    )
    return output.logits, _cached(cache.self_attention_cache)


class Blip(VisionLanguage):
    """A vision transformer, and a BERT-like decoder with cross-attention to its tokens.

    BLIP: Bootstrapping Language-Image Pre-training (Li et al., ICML 2022, arXiv:2201.12086).
    """

    def load(self, folder: Path) -> PreTrainedModel:
        from transformers import BlipForConditionalGeneration

        return load_network(BlipForConditionalGeneration, folder)

    def build(self, vision: dict[str, Any], text: dict[str, Any]) -> PreTrainedModel:
        from transformers import BlipConfig, BlipForConditionalGeneration

        vision |= {"initializer_range": 0.02}  # the library's 1e-10 suits loading weights alone
        text |= {"encoder_hidden_size": vision["hidden_size"], "sep_token_id": None}
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
        return [_by_head(each.key(features), each.value(features), each.num_attention_heads) for each in attentions]

    def cross_attention_modules(self) -> Sequence[nn.Module]:
        return [layer.crossattention for layer in self.network.text_decoder.bert.encoder.layer]

    def decode_tokens(self, tokens: Tensor, images: KeysValues, past: KeysValues | None) -> tuple[Tensor, KeysValues]:
        width = self.network.config.vision_config.hidden_size
        before = past[0][0].shape[2] if past else 0
        # The library would make it of numbers of the host, which a GPU waits for in some of its releases.
        later = images[0][0].new_full((tokens.shape[1], before + tokens.shape[1]), -torch.inf)
        attention_bias = later.triu(before + 1)[None, None]
        return _cross_attending(self.network.text_decoder, tokens, images, past, width, attention_bias)


class Git(VisionLanguage):
    """One transformer over visual tokens, which attend to each other, and words, which attend to all before them.

    GIT: A Generative Image-to-text Transformer (Wang et al., TMLR 2022, arXiv:2205.14100).
    """

    def load(self, folder: Path) -> PreTrainedModel:
        from transformers import GitForCausalLM

        return load_network(GitForCausalLM, folder)

    def build(self, vision: dict[str, Any], text: dict[str, Any]) -> PreTrainedModel:
        from transformers import GitConfig, GitForCausalLM

        return GitForCausalLM(GitConfig(vision_config=vision, **text))

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
        last_pair = _by_head(attention.key(features), attention.value(features), attention.num_attention_heads)
        return [*_cached(cache), last_pair]

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
        words = [(keys[:, :, seen:], values[:, :, seen:]) for keys, values in _cached(cache)]
        logits: Tensor = self.network.output(hidden)
        return logits, words


def _joined(image: tuple[Tensor, Tensor], row: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    return torch.cat((image[0], row[0]), 2), torch.cat((image[1], row[1]), 2)


def _causal(length: int, before: int, like: Tensor) -> Tensor:
    """(1, 1, T, before + T), added to attention scores: zero at visible positions, very negative elsewhere."""
    later = torch.ones(length, before + length, dtype=torch.bool, device=like.device).triu(before + 1)
    return like.new_zeros(later.shape).masked_fill(later, torch.finfo(like.dtype).min)[None, None]


class VitGpt2(VisionLanguage):
    """ViT (Dosovitskiy et al., ICLR 2021) and GPT-2 (Radford et al. 2019) joined by cross-attention."""

    def load(self, folder: Path) -> PreTrainedModel:
        from transformers import VisionEncoderDecoderModel

        network = load_network(VisionEncoderDecoderModel, folder, unused="encoder.pooler.")
        network.get_submodule("encoder").pooler = None  # type: ignore[assignment]  # a weight without use
        words: Any = network.get_submodule("decoder.transformer")
        words.config.pad_token_id = None  # of which the library would ask at every pass whether it comes
        return network

    def build(self, vision: dict[str, Any], text: dict[str, Any]) -> PreTrainedModel:
        from transformers import GPT2Config, GPT2LMHeadModel, VisionEncoderDecoderModel, ViTConfig, ViTModel

        decoder = GPT2Config(
            vocab_size=text["vocab_size"],
            n_embd=text["hidden_size"],
            n_inner=text["intermediate_size"],
            n_layer=text["num_hidden_layers"],
            n_head=text["num_attention_heads"],
            n_positions=text["max_position_embeddings"],
            resid_pdrop=text["hidden_dropout_prob"],
            embd_pdrop=text["hidden_dropout_prob"],
            attn_pdrop=text["hidden_dropout_prob"],
            add_cross_attention=True,
            bos_token_id=None,
            eos_token_id=None,
        )
        encoder = ViTModel(ViTConfig(**vision), add_pooling_layer=False)
        return VisionEncoderDecoderModel(encoder=encoder, decoder=GPT2LMHeadModel(decoder))

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
        return [_by_head(keys, values, count) for (keys, values), count in pairs]

    def cross_attention_modules(self) -> Sequence[nn.Module]:
        return [block.crossattention for block in self.network.decoder.transformer.h]

    def decode_tokens(self, tokens: Tensor, images: KeysValues, past: KeysValues | None) -> tuple[Tensor, KeysValues]:
        return _cross_attending(self.network.decoder, tokens, images, past, self.network.config.decoder.n_embd)
