"""Vision-language models of the transformers library as captioners, decoded by the zoo's own searches.

Their key-value caches become decoding states: entries of an image are stored once, entries of a beam are reordered.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from zoo.captioner import Captioner, DecodingState, Memory, Visual, VisualSpec
from zoo.errors import ZooError
from zoo.layers.attention import split_heads

if TYPE_CHECKING:
    from transformers import PreTrainedModel

KeysValues = list[tuple[Tensor, Tensor]]
"""Keys and values (R, H, L, d_k) of each layer."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of a network with random weights, as `VisionLanguage` takes them."""

    vocab_size: int
    image_size: int
    patch_size: int
    d_model: int
    d_ff: int
    n_heads: int
    n_encoder_layers: int
    n_decoder_layers: int
    dropout: float
    max_len: int

    def vision(self) -> dict[str, Any]:
        """Arguments of the library's configurations of vision transformers."""
        return {
            "hidden_size": self.d_model,
            "intermediate_size": self.d_ff,
            "num_hidden_layers": self.n_encoder_layers,
            "num_attention_heads": self.n_heads,
            "image_size": self.image_size,
            "patch_size": self.patch_size,
        }

    def text(self) -> dict[str, Any]:
        """Arguments of the library's configurations of decoders like BERT, without special tokens."""
        return {
            "hidden_size": self.d_model,
            "intermediate_size": self.d_ff,
            "num_attention_heads": self.n_heads,
            "num_hidden_layers": self.n_decoder_layers,
            "vocab_size": self.vocab_size,
            "hidden_dropout_prob": self.dropout,
            "attention_probs_dropout_prob": self.dropout,
            "max_position_embeddings": self.max_len,
            "bos_token_id": None,
            "eos_token_id": None,
        }


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
        layers = (n_encoder_layers, n_decoder_layers)
        sizes = Sizes(vocab_size, image_size, patch_size, d_model, d_ff, n_heads, *layers, dropout, max_len)
        self.network: Any = self.build(sizes) if folder is None else self.load(folder)
        self.visual = VisualSpec("pixels", 0)
        self.vocab_size = self.text_config().vocab_size
        self.max_len = max_len
        self._same = _shared_names(self)
        self.register_state_dict_post_hook(_leave_out_copies)  # type: ignore[no-untyped-call]
        self.register_load_state_dict_pre_hook(_put_back_copies)  # type: ignore[no-untyped-call]

    @abstractmethod
    def build(self, sizes: Sizes) -> PreTrainedModel:
        """The network with random weights."""

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
        state_dict[prefix + name] = state_dict[prefix + kept]


def _layers(tensors: dict[str, Tensor], rows: int) -> KeysValues:
    """The pairs by layer, repeated for the rows of each image."""

    def repeated(name: str) -> Tensor:
        tensor = tensors[name]
        return tensor if tensor.shape[0] == rows else tensor.repeat_interleave(rows // tensor.shape[0], 0)

    return [(repeated(f"keys.{layer}"), repeated(f"values.{layer}")) for layer in range(len(tensors) // 2)]


def by_head(keys: Tensor, values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """(B, L, D) to (B, H, L, d_k) each."""
    return split_heads(keys, count), split_heads(values, count)


def cached(cache: Any) -> KeysValues:
    """The content of a transformers cache, layer by layer."""
    return [(layer.keys, layer.values) for layer in cache.layers]


def cross_attending(
    decoder: nn.Module,
    tokens: Tensor,
    images: KeysValues,
    past: KeysValues | None,
    width: int,
    barrier: Tensor | None = None,
) -> tuple[Tensor, KeysValues]:
    """`VisionLanguage.decode_tokens` for a text decoder with cross-attention to the images.

    Args:
        decoder: a causal language model of transformers with cross-attention.
        width: channels of the visual tokens, which the decoder requires even though keys and values are cached.
        barrier: (1, 1, T, S), added to the scores of all S words so far; without it, the decoder's own.
    """
    from transformers import DynamicCache, EncoderDecoderCache

    cache = EncoderDecoderCache(DynamicCache(past) if past else DynamicCache(), DynamicCache(images))
    rows, length = tokens.shape[0], images[0][0].shape[2]
    output = decoder(
        input_ids=tokens,
        attention_mask=barrier,
        encoder_hidden_states=images[0][0].new_zeros(1, 1, 1).expand(rows, length, width),
        past_key_values=cache,
        use_cache=True,
    )
    return output.logits, cached(cache.self_attention_cache)
