"""Base class of captioners whose decoder is a stack of layers with cross-attention."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.captioner import Captioner, DecodingState, Memory, VisualSpec
from zoo.layers.attention import MultiHeadAttention, SelfAttention, fuse_linears, mask_to_bias, split_heads
from zoo.layers.cache import for_layers, of_layer, stack_caches
from zoo.layers.embedding import FixedPositions, TokenEmbedding, sinusoids
from zoo.layers.expansion import DynamicExpansion
from zoo.layers.residual import DecoderLayer, StackOutput, attention_mixers

_PARTS = ("weight", "bias", "totals")  # of a mixer's `projection`; only dynamic expansion has totals


class StackedCaptioner(Captioner):
    """Decodes with `embedding`, `decoder_layers`, `decoder_output` and `vocabulary`, which a subclass builds."""

    embedding: TokenEmbedding
    decoder_layers: nn.ModuleList
    decoder_output: StackOutput
    vocabulary: nn.Linear

    def __init__(self, visual: VisualSpec, vocab_size: int, max_len: int) -> None:
        super().__init__()
        self.visual = visual
        self.vocab_size = vocab_size
        self.max_len = max_len

    def build_decoder(
        self,
        d_model: int,
        dropout: float,
        layers: Iterable[DecoderLayer],
        *,
        scale: float | None = 1.0,
        bias: bool = False,
    ) -> None:
        """Build the decoder of codes like the meshed-memory transformer's: post-norm layers without a final norm.

        Position 0 is padding in the authors' tables. These are saved, since some of them were initialised at random.
        """
        positions = FixedPositions(sinusoids(self.max_len + 1, d_model), first=1, saved=True)
        self.embedding = TokenEmbedding(self.vocab_size, d_model, self.max_len, None, positions=positions, scale=scale)
        self.decoder_layers = nn.ModuleList(layers)
        self.decoder_output = StackOutput(d_model, len(self.decoder_layers), dropout, reduce=False, norm=nn.Identity)
        self.vocabulary = nn.Linear(d_model, self.vocab_size, bias=bias)

    def init_weights(self, *, quirks: bool = False) -> None:
        """Initialise matrices Xavier-uniformly; with `quirks` also tensors of more axes and the table of positions."""
        for parameter in self.parameters():
            if parameter.dim() == 2 or (parameter.dim() > 2 and quirks):
                nn.init.xavier_uniform_(parameter)
        if quirks:
            nn.init.xavier_uniform_(self.get_buffer("embedding.positions.table"))

    def decode(self, memory: Memory, tokens: Tensor) -> Tensor:
        """See `Captioner.decode`. Padding is at the end, where causal mixers hide it."""
        x = self.embedding(tokens)
        attention_bias, projected = self._project_memory(memory)
        outputs = []
        for layer, (keys, values) in zip(self._layers(), projected, strict=True):
            x = layer(x, keys, values, attention_bias)
            outputs.append(x)
        return self.predict(outputs)

    def start(self, memory: Memory) -> DecodingState:
        attention_bias, projected = self._project_memory(memory)
        images = {"attention_bias": attention_bias}
        shared = {"positions": self.embedding.rows()}  # embeddings of the positions not yet decoded
        for index, (layer, (keys, values)) in enumerate(zip(self._layers(), projected, strict=True)):
            images[f"{index}.keys"], images[f"{index}.values"] = keys, values
            for name, tensor in zip(_PARTS, layer.mixer.projection(), strict=False):
                shared[f"{index}.{name}"] = tensor
        rows = for_layers(self._mixer().start(memory.features), len(self.decoder_layers))
        return DecodingState(images, rows, shared)

    def step(self, tokens: Tensor, state: DecodingState) -> tuple[Tensor, DecodingState]:
        """See `Captioner.step`. Dynamic expansion applies no dropout here: sample in evaluation mode.

        Tensors of `rows` that belong to no cache are passed to every layer.
        """
        images = state.images
        shared = state.shared
        x = self.embedding.at_position(tokens[:, None], shared["positions"][0])
        caches = self._mixer().widen(state.rows)
        not_cached = {name: tensor for name, tensor in state.rows.items() if name not in caches}
        new_caches = []
        outputs = []
        for index, layer in enumerate(self._layers()):
            prefix = f"{index}."
            keys = images[prefix + "keys"]
            values = images[prefix + "values"]
            projection = tuple(shared[prefix + name] for name in _PARTS if prefix + name in shared)
            x = self.enter_layer(index, x, images)
            cache = of_layer(caches, index) | not_cached
            x, cache = layer.step(x, keys, values, images["attention_bias"], cache, projection)
            new_caches.append(cache)
            outputs.append(x)
        shared = {**shared, "positions": shared["positions"][1:]}
        return self.predict(outputs)[:, 0], DecodingState(images, stack_caches(caches, new_caches), shared)

    def enter_layer(self, index: int, x: Tensor, images: dict[str, Tensor]) -> Tensor:  # noqa: ARG002  # for subclasses
        """The input of a layer in `step`, from the output of the layer before it and `DecodingState.images`."""
        return x

    def predict(self, outputs: Sequence[Tensor]) -> Tensor:
        """Logits from the outputs of all layers, first to last."""
        logits: Tensor = self.vocabulary(self.decoder_output(outputs))
        return logits

    def cross_attention_modules(self) -> Sequence[nn.Module]:
        return [layer.cross_attention for layer in self._layers()]

    def region_attention_modules(self) -> Sequence[nn.Module]:
        """See `Captioner.region_attention_modules`: those of `encoder_layers`, where the model has them.

        Expansion relates tokens to learned vectors, not to each other.
        """
        return attention_mixers(self.get_submodule("encoder_layers")) if hasattr(self, "encoder_layers") else ()

    def _project_memory(self, memory: Memory) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """The attention bias of the visual tokens, and their keys and values in every decoder layer."""
        attentions = [layer.cross_attention for layer in self._layers()]
        if torch.is_grad_enabled() and all(type(attention) is MultiHeadAttention for attention in attentions):
            linears = [attention.key for attention in attentions] + [attention.value for attention in attentions]
            keys_values = F.linear(memory.features, *fuse_linears(*linears))
            n_heads = len(attentions) * attentions[0].n_heads
            all_keys, all_values = (split_heads(half, n_heads) for half in keys_values.chunk(2, -1))
            attention_bias, [all_keys] = mask_to_bias(memory.mask, [all_keys])
            n_layers = len(attentions)
            return attention_bias, list(zip(all_keys.chunk(n_layers, 1), all_values.chunk(n_layers, 1), strict=True))
        projected = [attention.project(memory.features) for attention in attentions]
        attention_bias, keys = mask_to_bias(memory.mask, [keys for keys, _ in projected])
        return attention_bias, list(zip(keys, (values for _, values in projected), strict=True))

    def _mixer(self) -> SelfAttention | DynamicExpansion:
        """The mixer of the first decoder layer; those of the others have the same type and sizes."""
        return next(iter(self._layers())).mixer

    def _layers(self) -> Iterable[DecoderLayer]:
        return self.decoder_layers  # type: ignore[return-value]  # ModuleList is not generic
