"""Vision-language models of the transformers library as captioners, decoded with `zoo.decoding`.

Their key-value caches become decoding states: entries of an image are stored once, those of a beam are reordered.
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
        image_size: side of images without interpolation of the position embeddings.
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
        self._tied = _tied_names(self)
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
        """The configuration of the language part."""

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
            raise ZooError("this model needs pixels, but the input has none")
        features = self.encode_image(visual.pixels.to(next(self.parameters()).dtype))
        extra = _by_name(self.image_keys_values(features))
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
        return logits[:, -1], DecodingState(state.images, _by_name(past))


def _tied_names(module: nn.Module) -> dict[str, str]:
    """For each further name of a tied parameter, the name under which it is stored."""
    first_names: dict[int, str] = {}
    tied = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        stored = first_names.setdefault(id(parameter), name)
        if stored != name:
            tied[name] = stored
    return tied


def _leave_out_copies(module: VisionLanguage, state_dict: dict[str, Tensor], prefix: str, _: Any) -> None:
    """Store a tied parameter once, as safetensors requires."""
    for name in module._tied:
        del state_dict[prefix + name]


def _put_back_copies(module: VisionLanguage, state_dict: dict[str, Tensor], prefix: str, *_: Any) -> None:
    """Load a tied parameter under all its names."""
    for name, stored in module._tied.items():
        if prefix + stored in state_dict:  # otherwise torch reports it as missing
            state_dict[prefix + name] = state_dict[prefix + stored]


def _by_name(pairs: KeysValues) -> dict[str, Tensor]:
    """The keys and values of all layers by name, for a `Memory` or a `DecodingState`."""
    tensors = {}
    for layer, (keys, values) in enumerate(pairs):
        tensors[f"keys.{layer}"], tensors[f"values.{layer}"] = keys, values
    return tensors


def _layers(tensors: dict[str, Tensor], rows: int) -> KeysValues:
    """The pairs of `_by_name` by layer, repeated for the rows of each image."""

    def repeated(name: str) -> Tensor:
        tensor = tensors[name]
        return tensor if tensor.shape[0] == rows else tensor.repeat_interleave(int(rows // tensor.shape[0]), 0)

    return [(repeated(f"keys.{layer}"), repeated(f"values.{layer}")) for layer in range(len(tensors) // 2)]


def _by_head(keys: Tensor, values: Tensor, n_heads: int) -> tuple[Tensor, Tensor]:
    """(B, L, D) to (B, H, L, d_k) each."""
    return split_heads(keys, n_heads), split_heads(values, n_heads)


def _cached(cache: Any) -> KeysValues:
    """The keys and values in a cache of the transformers library."""
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
        width: channels of the visual tokens, which the decoder requires although keys and values are cached.
        attention_bias: (1, 1, T, S), added to the scores of all S words so far; the decoder's own if not given.
    """
    from transformers import DynamicCache, EncoderDecoderCache

    cache = EncoderDecoderCache(DynamicCache(past) if past else DynamicCache(), DynamicCache(images))
    rows = tokens.shape[0]
    length = images[0][0].shape[2]
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

        vision |= {"initializer_range": 0.02}  # the library's 1e-10 is meant for weights that are loaded afterwards
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
        return [
            _by_head(attention.key(features), attention.value(features), attention.num_attention_heads)
            for attention in attentions
        ]

    def cross_attention_modules(self) -> Sequence[nn.Module]:
        return [layer.crossattention for layer in self.network.text_decoder.bert.encoder.layer]

    def decode_tokens(self, tokens: Tensor, images: KeysValues, past: KeysValues | None) -> tuple[Tensor, KeysValues]:
        width = self.network.config.vision_config.hidden_size
        n_past = past[0][0].shape[2] if past else 0
        # The library would build this mask on the host in some releases, for which a GPU has to wait.
        hidden = images[0][0].new_full((tokens.shape[1], n_past + tokens.shape[1]), -torch.inf)
        attention_bias = hidden.triu(n_past + 1)[None, None]
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
        """See `VisionLanguage.image_keys_values`; of the last layer, only keys and values are computed."""
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

        n_visual = images[0][0].shape[2]
        context = images
        if past is not None:
            context = [
                (torch.cat((image_keys, word_keys), 2), torch.cat((image_values, word_values), 2))
                for (image_keys, image_values), (word_keys, word_values) in zip(images, past, strict=True)
            ]
        cache = DynamicCache(context)
        n_past = context[0][0].shape[2] - n_visual
        length = tokens.shape[1]
        positions = torch.arange(n_past, n_past + length, device=tokens.device).expand_as(tokens)
        embedded = self.network.git.embeddings(input_ids=tokens, position_ids=positions)
        attention_bias = _causal_bias(length, n_visual + n_past, embedded)
        hidden = self.network.git.encoder(embedded, attention_bias, cache).last_hidden_state
        words = [(keys[:, :, n_visual:], values[:, :, n_visual:]) for keys, values in _cached(cache)]
        logits: Tensor = self.network.output(hidden)
        return logits, words


def _causal_bias(length: int, n_past: int, like: Tensor) -> Tensor:
    """The attention bias (1, 1, T, n_past + T) of T positions: zero at visible ones, the lowest number elsewhere."""
    hidden = torch.ones(length, n_past + length, dtype=torch.bool, device=like.device).triu(n_past + 1)
    return like.new_zeros(hidden.shape).masked_fill(hidden, torch.finfo(like.dtype).min)[None, None]


class VitGpt2(VisionLanguage):
    """ViT (Dosovitskiy et al., ICLR 2021) and GPT-2 (Radford et al. 2019) joined by cross-attention."""

    def load(self, folder: Path) -> PreTrainedModel:
        from transformers import VisionEncoderDecoderModel

        network = load_network(VisionEncoderDecoderModel, folder, unused="encoder.pooler.")
        network.get_submodule("encoder").pooler = None  # type: ignore[assignment]  # an unused weight
        decoder: Any = network.get_submodule("decoder.transformer")
        decoder.config.pad_token_id = None  # otherwise the library searches the tokens for it in every pass
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
        pairs = []
        for attention in attentions:
            keys, values = attention.c_attn(features).chunk(2, -1)
            pairs.append(_by_head(keys, values, attention.num_heads))
        return pairs

    def cross_attention_modules(self) -> Sequence[nn.Module]:
        return [block.crossattention for block in self.network.decoder.transformer.h]

    def decode_tokens(self, tokens: Tensor, images: KeysValues, past: KeysValues | None) -> tuple[Tensor, KeysValues]:
        return _cross_attending(self.network.decoder, tokens, images, past, self.network.config.decoder.n_embd)
