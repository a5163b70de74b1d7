"""Base class of captioners whose decoder is a stack of layers with cross-attention."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.captioner import Captioner, DecodingState, Memory, VisualSpec
from zoo.layers.attention import MultiHeadAttention, SelfAttention, joined, mask_to_bias, split_heads
from zoo.layers.cache import for_layers, of_layer, together
from zoo.layers.embedding import FixedPositions, TokenEmbedding, sinusoids
from zoo.layers.expansion import DynamicExpansion
from zoo.layers.residual import DecoderLayer, StackOutput, attention_mixers

_PARTS = ("weight", "bias", "totals")  # of a mixer's `projection`; only dynamic expansion has totals


class StackedCaptioner(Captioner):
    """Decodes with `embedding`, `decoder_layers`, `decoder_output` and `vocabulary`, which the architecture builds."""

    embedding: TokenEmbedding
    decoder_layers: nn.ModuleList
    decoder_output: StackOutput
    vocabulary: nn.Linear

    def __init__(self, visual: VisualSpec, vocab_size: int, max_len: int) -> None:
        super().__init__()
        self.visual, self.vocab_size, self.max_len = visual, vocab_size, max_len

    def build_decoder(
        self,
        d_model: int,
        dropout: float,
        layers: Iterable[DecoderLayer],
        *,
        scale: float | None = 1.0,
        bias: bool = False,
    ) -> None:
        """The decoder of released codes like the meshed-memory transformer's: post-norm layers, and no norm after them.

        Position 0 is padding in the authors' tables, which are saved since not all can be computed.
        """
        positions = FixedPositions(sinusoids(self.max_len + 1, d_model), first=1, saved=True)
        self.embedding = TokenEmbedding(self.vocab_size, d_model, self.max_len, None, positions=positions, scale=scale)
        self.decoder_layers = nn.ModuleList(layers)
        self.decoder_output = StackOutput(d_model, len(self.decoder_layers), dropout, reduce=False, norm=nn.Identity)
        self.vocabulary = nn.Linear(d_model, self.vocab_size, bias=bias)

    def start_weights(self, *, quirks: bool = False) -> None:
        """All matrices Xavier-uniform; with `quirks`, as released, what has more axes and the fixed table too."""
        for parameter in self.parameters():
            if parameter.dim() == 2 or (parameter.dim() > 2 and quirks):
                nn.init.xavier_uniform_(parameter)
        if quirks:
            nn.init.xavier_uniform_(self.get_buffer("embedding.positions.table"))

    def decode(self, memory: Memory, tokens: Tensor) -> Tensor:
        """See `Captioner.decode`. Padding is at the end, where the causal mixers hide it."""
        x = self.embedding(tokens)
        attention_bias, projected = self._look(memory)
        outputs = []
        for layer, (keys, values) in zip(self._layers(), projected, strict=True):
            x = layer(x, keys, values, attention_bias)
            outputs.append(x)
        return self.predict(outputs)

    def start(self, memory: Memory) -> DecodingState:
        attention_bias, projected = self._look(memory)
        images = {"attention_bias": attention_bias}
        shared = {"places": self.embedding.rows()}  # those of positions to come
        for index, (layer, (keys, values)) in enumerate(zip(self._layers(), projected, strict=True)):
            images[f"{index}.keys"], images[f"{index}.values"] = keys, values
            shared.update(
                {f"{index}.{name}": part for name, part in zip(_PARTS, layer.mixer.projection(), strict=False)}
            )
        rows = for_layers(self._mixer().start(memory.features), len(self.decoder_layers))
        return DecodingState(images, rows, shared)

    def step(self, tokens: Tensor, state: DecodingState) -> tuple[Tensor, DecodingState]:
        """See `Captioner.step`. The expansions' inner dropout is left out here: sample in evaluation mode.

        Of `rows`, what no cache holds is given to every layer.
        """
        images, shared = state.images, state.shared
        x = self.embedding.place(tokens[:, None], shared["places"][0])
        caches = self._mixer().widen(state.rows)
        others = {name: row for name, row in state.rows.items() if name not in caches}
        after, outputs = [], []
        for index, layer in enumerate(self._layers()):
            prefix = f"{index}."
            keys, values = images[prefix + "keys"], images[prefix + "values"]
            projection = tuple(shared[prefix + name] for name in _PARTS if prefix + name in shared)
            x = self.enter_layer(index, x, images)
            x, cache = layer.step(
                x, keys, values, images["attention_bias"], of_layer(caches, index) | others, projection
            )
            after.append(cache)
            outputs.append(x)
        shared = {**shared, "places": shared["places"][1:]}
        return self.predict(outputs)[:, 0], DecodingState(images, together(caches, after), shared)

    def enter_layer(self, index: int, x: Tensor, images: dict[str, Tensor]) -> Tensor:  # noqa: ARG002  # itself here
        """What a layer is given in a step, from the output of the one before it and `DecodingState.images`."""
        return x

    def predict(self, outputs: Sequence[Tensor]) -> Tensor:
        """Logits from the outputs of all layers, first to last."""
        logits: Tensor = self.vocabulary(self.decoder_output(outputs))
        return logits

    def cross_attention_modules(self) -> Sequence[nn.Module]:
        return [layer.cross_attention for layer in self._layers()]

    def region_attention_modules(self) -> Sequence[nn.Module]:
        """See `Captioner.region_attention_modules`: those of `encoder_layers`, where the model has them.

        Expansion relates the tokens to vectors of its own, and not to each other.
        """
        return attention_mixers(self.get_submodule("encoder_layers")) if hasattr(self, "encoder_layers") else ()

    def _look(self, memory: Memory) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """The attention bias of the visual tokens, and every layer's keys and values of them."""
        attentions = [layer.cross_attention for layer in self._layers()]
        if torch.is_grad_enabled() and all(type(each) is MultiHeadAttention for each in attentions):
            projection = joined(*(each.key for each in attentions), *(each.value for each in attentions))
            heads = len(attentions) * attentions[0].n_heads
            every = [split_heads(half, heads) for half in F.linear(memory.features, *projection).chunk(2, -1)]
            attention_bias, [every_key] = mask_to_bias(memory.mask, every[:1])
            halves = (part.chunk(len(attentions), 1) for part in (every_key, every[1]))
            return attention_bias, list(zip(*halves, strict=True))
        projected = [each.project(memory.features) for each in attentions]
        attention_bias, keys = mask_to_bias(memory.mask, [keys for keys, _ in projected])
        return attention_bias, list(zip(keys, (values for _, values in projected), strict=True))

    def _mixer(self) -> SelfAttention | DynamicExpansion:
        """That of the first layer; the others are like it."""
        return next(iter(self._layers())).mixer

    def _layers(self) -> Iterable[DecoderLayer]:
        return self.decoder_layers  # type: ignore[return-value]  # ModuleList is not generic
