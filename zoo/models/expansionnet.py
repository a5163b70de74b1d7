"""ExpansionNet v1 and v2, and the transformer that their ablations start from.

J. C. Hu, R. Cavicchioli, A. Capotondi:
"ExpansionNet v2: Block Static Expansion in fast end to end training for Image Captioning", arXiv:2208.06551;
later version "Exploiting Multiple Sequence Lengths in Fast End to End Training for Image Captioning", Big Data 2023;
"ExpansionNet: exploring the sequence length bottleneck in the Transformer for Image Captioning", arXiv:2207.03327.
Code: https://github.com/jchenghu/ExpansionNet_v2 (MIT). Where code and papers differ, this follows the code.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from zoo.captioner import Captioner, DecodingState, Memory, Visual, VisualSpec
from zoo.errors import ZooError
from zoo.layers.attention import SelfAttention
from zoo.layers.dynamic_expansion import DynamicExpansion
from zoo.layers.embedding import TokenEmbedding
from zoo.layers.pre_norm import DecoderLayer, EncoderLayer, StackOutput
from zoo.layers.static_expansion import StaticExpansion

EncoderMixer = Literal["self_attention", "static", "dynamic", "none"]
DecoderMixer = Literal["self_attention", "dynamic"]


class ExpansionNet(Captioner):
    """Pre-norm encoder and decoder with a choice of token mixer on either side.

    Args:
        vocab_size, visual_dim, d_model, d_ff, n_heads, n_encoder_layers, n_decoder_layers: sizes.
        dropout: at every site of both stacks.
        max_len: rows of the position table.
        encoder: mixer of the visual tokens; "none" sees no image and decodes from one learned vector.
        decoder: mixer of the words.
        static_lengths: the groups G of static expansion.
        dynamic_length: N_E of dynamic expansion.
        encoder_reduce, decoder_reduce: fuse all layers of a stack; by default where the stack uses expansion.
        visual_kind: what the visual tokens are.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        visual_dim: int,
        d_model: int = 512,
        d_ff: int = 2048,
        n_heads: int = 8,
        n_encoder_layers: int = 3,
        n_decoder_layers: int = 3,
        dropout: float = 0.3,
        max_len: int = 74,
        encoder: EncoderMixer = "static",
        decoder: DecoderMixer = "dynamic",
        static_lengths: Sequence[int] = (32, 64, 128, 256, 512),
        dynamic_length: int = 16,
        encoder_reduce: bool | None = None,
        decoder_reduce: bool | None = None,
        visual_kind: Literal["grid", "regions"] = "grid",
    ) -> None:
        super().__init__()
        _check_choice("encoder", encoder, ("self_attention", "static", "dynamic", "none"))
        _check_choice("decoder", decoder, ("self_attention", "dynamic"))
        _check_choice("visual_kind", visual_kind, ("grid", "regions"))
        _check_positive({"n_encoder_layers": n_encoder_layers, "n_decoder_layers": n_decoder_layers})
        _check_positive({"dynamic_length": dynamic_length, "static_lengths": min(static_lengths, default=0)})
        self.vocab_size = vocab_size
        self.max_len = max_len

        if encoder == "none":
            self.visual = VisualSpec("none", 0)
            self.memory = nn.Parameter(torch.empty(1, d_model))
        else:
            self.visual = VisualSpec(visual_kind, visual_dim)
            self.input = nn.Linear(visual_dim, d_model)
            self.input_dropout = nn.Dropout(dropout)
            self.encoder_layers = nn.ModuleList()
            for _ in range(n_encoder_layers):
                mixer: SelfAttention | StaticExpansion | DynamicExpansion
                if encoder == "static":
                    mixer = StaticExpansion(d_model, static_lengths, dropout)
                elif encoder == "dynamic":
                    mixer = DynamicExpansion(d_model, dynamic_length, dropout, causal=False)
                else:
                    mixer = SelfAttention(d_model, n_heads, causal=False)
                self.encoder_layers.append(EncoderLayer(mixer, d_model, d_ff, dropout))
            reduce = encoder != "self_attention" if encoder_reduce is None else encoder_reduce
            self.encoder_output = StackOutput(d_model, n_encoder_layers, dropout, reduce)

        self.embedding = TokenEmbedding(vocab_size, d_model, max_len, dropout)
        self.decoder_layers = nn.ModuleList(
            DecoderLayer(
                DynamicExpansion(d_model, dynamic_length, dropout, causal=True)
                if decoder == "dynamic"
                else SelfAttention(d_model, n_heads, causal=True),
                d_model,
                d_ff,
                n_heads,
                dropout,
            )
            for _ in range(n_decoder_layers)
        )
        reduce = decoder == "dynamic" if decoder_reduce is None else decoder_reduce
        self.decoder_output = StackOutput(d_model, n_decoder_layers, dropout, reduce)
        self.vocabulary = nn.Linear(d_model, vocab_size)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)

    def encode(self, visual: Visual) -> Memory:
        """See `Captioner.encode`; padded tokens are blanked first, so that not even a NaN in them can spread."""
        if self.visual.kind == "none":
            features = self.memory.expand(visual.batch_size, 1, -1)
            return Memory(features, torch.ones(features.shape[:2], dtype=torch.bool, device=features.device))
        if visual.features is None:
            raise ZooError("this model needs visual features, and got none")
        x, mask = visual.features.to(self.input.weight.dtype), visual.mask
        if mask is not None:
            x = x.masked_fill(~mask[..., None], 0.0)
        x = self.input_dropout(self.input(x))
        outputs = []
        for layer in self.encoder_layers:
            x = layer(x, mask)
            outputs.append(x)
        if mask is None:
            mask = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        return Memory(self.encoder_output(outputs), mask)

    def decode(self, memory: Memory, tokens: Tensor) -> Tensor:
        """See `Captioner.decode`. Padding stands at the end, where the causal mixers let nothing look at it."""
        x = self.embedding(tokens)
        outputs = []
        for layer in self._decoder_layers():
            x = layer(x, *layer.cross_attention.project(memory.features), memory.mask)
            outputs.append(x)
        logits: Tensor = self.vocabulary(self.decoder_output(outputs))
        return logits

    def start(self, memory: Memory) -> DecodingState:
        """See `Captioner.start`."""
        images, shared = {"mask": memory.mask}, {}
        rows = {"position": torch.zeros(memory.batch_size, dtype=torch.long, device=memory.features.device)}
        for index, layer in enumerate(self._decoder_layers()):
            images[f"{index}.keys"], images[f"{index}.values"] = layer.cross_attention.project(memory.features)
            rows.update({f"{index}.{name}": entry for name, entry in layer.mixer.start(memory.features).items()})
            shared[f"{index}.weight"], shared[f"{index}.bias"] = layer.mixer.projection()
        return DecodingState(images, rows, shared)

    def step(self, tokens: Tensor, state: DecodingState) -> tuple[Tensor, DecodingState]:
        """See `Captioner.step`. The expansions' inner dropout is left out here: sample in evaluation mode."""
        images, shared, position = state.images, state.shared, state.rows["position"]
        x = self.embedding(tokens[:, None], position[:, None])
        rows, outputs = {"position": position + 1}, []
        for index, layer in enumerate(self._decoder_layers()):
            prefix = f"{index}."
            cache = {name.removeprefix(prefix): row for name, row in state.rows.items() if name.startswith(prefix)}
            keys, values = images[prefix + "keys"], images[prefix + "values"]
            projection = shared[prefix + "weight"], shared[prefix + "bias"]
            x, cache = layer.step(x, keys, values, images["mask"], cache, projection)
            rows.update({prefix + name: row for name, row in cache.items()})
            outputs.append(x)
        return self.vocabulary(self.decoder_output(outputs))[:, 0], DecodingState(images, rows, shared)

    def _decoder_layers(self) -> Iterable[DecoderLayer]:
        return self.decoder_layers  # type: ignore[return-value]  # ModuleList is not generic


def _check_choice(argument: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ZooError(f"{argument} cannot be {value!r}", f"it is one of {', '.join(choices)}")


def _check_positive(sizes: dict[str, int]) -> None:
    for argument, value in sizes.items():
        if value < 1:
            raise ZooError(f"{argument} must be at least 1, not {value}")
