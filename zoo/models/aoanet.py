"""AoANet.

L. Huang, W. Wang, J. Chen, X.-Y. Wei: "Attention on Attention for Image Captioning", ICCV 2019 (arXiv:1908.06954).
Code: https://github.com/husthuaan/AoANet (MIT), which this follows where it differs from the paper.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.captioner import Memory, Visual, VisualSpec
from zoo.converter import Converter, Tensors, convert_lstm, lstm_names
from zoo.fast.aoanet import AoAScan
from zoo.layers.annotated_norm import EPSILON, AnnotatedNorm
from zoo.layers.aoa import AoADropouts, AoARefiner, AttentionOnAttention, MemoriesAttention
from zoo.layers.attention import fuse_linears, head_width
from zoo.layers.lstm import LSTMCell
from zoo.layers.pooling import mean_of_valid
from zoo.layers.residual import attention_mixers
from zoo.recurrent import RecurrentCaptioner, Rows

BRANCH_DROPOUT, GATE_DROPOUT = 0.1, 0.3  # of the refiner, in the authors' code


class AoACaptioner(RecurrentCaptioner):
    """An LSTM decoder with attention on attention, over embedded regions and an optional refiner of them.

    h = LSTM([word; mean + context], h); context = GLU(W [1/M sum_m attend_m(norm(h)); h]); p = softmax(W context).

    Args:
        refiner: an encoder of regions with `layers` of attention; without it the decoder attends to embedded regions.
        n_memories: M, parallel cross-attentions, each with its own keys and values, whose results are averaged.
        d_word: width of word embeddings; d_model if not given.
        dropout: on embedded regions and words, on the context that is fed back to the LSTM, and before the vocabulary.
        attention_dropout: in the decoder.
    """

    per_row = ("image",)
    states = ("hidden", "cell", "context")

    def __init__(
        self,
        *,
        vocab_size: int,
        visual_dim: int,
        d_model: int,
        d_word: int | None,
        n_heads: int,
        n_memories: int,
        refiner: nn.Module | None,
        dropout: float,
        attention_dropout: float,
        max_len: int,
    ) -> None:
        super().__init__(VisualSpec("regions", visual_dim), vocab_size, max_len, d_model)
        d_word = d_model if d_word is None else d_word
        self.region_embedding = nn.Sequential(nn.Linear(visual_dim, d_model), nn.ReLU(), nn.Dropout(dropout))
        self.refiner = refiner
        self.memories = nn.ModuleList(nn.Linear(d_model, 2 * d_model) for _ in range(n_memories))
        self.matrices_in = {"memories": 2}
        self.embedding = nn.Sequential(nn.Embedding(vocab_size, d_word), nn.ReLU(), nn.Dropout(dropout))
        self.lstm = LSTMCell(d_word, d_model, 2 * d_model)
        self.query_norm = AnnotatedNorm(d_model)
        self.query = nn.Linear(d_model, d_model)
        self.attention = MemoriesAttention(n_heads, n_memories, attention_dropout)
        self.context_dropout = nn.Dropout(dropout)
        self.gate = AttentionOnAttention(d_model)
        self.output_dropout = nn.Dropout(dropout)
        self.vocabulary = nn.Linear(d_model, vocab_size)

    def region_attention_modules(self) -> Sequence[nn.Module]:
        return () if self.refiner is None else attention_mixers(self.refiner.get_submodule("layers"))

    def encode(self, visual: Visual) -> Memory:
        """See `Captioner.encode`.

        `extra` has the keys and values (B, H, M * L, d_k), their attention bias, the mean region (B, D), and as "image"
        its part of the LSTM's pre-activations, with the biases (B, 4 D).
        """
        features, mask = self.valid_features(visual)
        regions = self.region_embedding(features)
        if self.refiner is not None:
            regions = self.refine(regions, mask, visual)
        memories: list[nn.Linear] = list(self.memories)  # type: ignore[arg-type]  # ModuleList is not generic
        projected = F.linear(regions, *fuse_linears(*memories)).view(*mask.shape, len(memories), 2, -1)
        first, second = projected.unbind(3)
        keys, values = (second, first) if len(memories) == 1 else (first, second)  # the authors' two codebases differ
        mean = mean_of_valid(regions.masked_fill(~mask[..., None], 0.0), mask)
        image = F.linear(mean, self.lstm.recurrent.weight[:, : self.d_model], self.lstm.both_biases())
        keys, values, attention_bias = self.attention.prepare(keys, values, mask)
        return Memory(
            regions,
            mask,
            {"keys": keys, "values": values, "mean": mean, "image": image, "attention_bias": attention_bias},
        )

    def refine(self, regions: Tensor, mask: Tensor, visual: Visual) -> Tensor:  # noqa: ARG002  # for subclasses
        """The regions (B, L, D) after the refiner."""
        assert self.refiner is not None
        refined: Tensor = self.refiner(regions, mask)
        return refined

    def shared_tensors(self) -> dict[str, Tensor]:
        """See `RecurrentCaptioner.shared_tensors`: one matrix computes query and gate from the hidden state.

        The query is W norm(h) + b = W G (h - mean(h)) / (deviation + eps) + (W s + b), where G is the norm's gain and s
        its shift. Subtracting from the rows of W G their means has the same effect as subtracting mean(h).
        """
        norm = self.query_norm
        query = self.query
        mix = self.gate.mix
        scaled = query.weight * norm.gain
        of_hidden = torch.cat((scaled - scaled.mean(1, keepdim=True), mix.weight[:, self.d_model :]))
        bias = torch.cat((torch.zeros_like(query.bias), mix.bias))
        constant = torch.addmv(query.bias, query.weight, norm.shift)
        return {"of_hidden": of_hidden, "hidden_bias": bias, "query": constant}

    def advance(self, inputs: Tensor, rows: Rows, images: dict[str, Tensor]) -> tuple[Tensor, Rows]:
        """See `RecurrentCaptioner.advance`; the rows of an image are adjacent and share its keys and values."""
        width = self.d_model
        past = torch.cat((self.context_dropout(rows["context"]), rows["hidden"]), 1)
        hidden, cell = self.lstm(inputs, past, rows["cell"])
        query, mixed = torch.split(F.linear(hidden, images["of_hidden"], images["hidden_bias"]), [width, 2 * width], 1)
        queries = torch.addcdiv(images["query"], query, hidden.std(1, keepdim=True) + EPSILON)
        attended = self.attention(queries, images["keys"], images["values"], images["attention_bias"])
        context = F.glu(torch.addmm(mixed, attended, self.gate.mix.weight[:, :width].t()), 1)
        return context, {"hidden": hidden, "cell": cell, "context": context}

    def scan(self, inputs: Tensor, images: dict[str, Tensor]) -> Tensor:
        keys = images["keys"]
        (batch, n_heads, n_keys, _), (rows, length, _) = keys.shape, inputs.shape
        of_context, of_hidden = self.lstm.recurrent.weight.split_with_sizes([self.d_model, self.d_model], 1)
        # the norm's gain and shift become part of the query layer
        norm = self.query_norm
        query = self.query
        contexts: Tensor = AoAScan.apply(
            *(inputs, keys, images["values"], images["attention_bias"]),
            _dropout_factors(self.context_dropout, inputs, (length, rows, self.d_model)),
            _dropout_factors(self.attention.dropout, inputs, (length, batch * n_heads, rows // batch, n_keys)),
            self.attention.n_memories,
            torch.cat((of_hidden, of_context), 1),
            *(query.weight * norm.gain, torch.addmv(query.bias, query.weight, norm.shift)),
            *(self.gate.mix.weight, self.gate.mix.bias),
        )
        return contexts


class AoANet(AoACaptioner):
    """AoANet: regions refined by attention on attention, and an LSTM with attention on attention (`AoACaptioner`).

    Args:
        d_word: width of word embeddings; d_model if not given.
        dropout: on embedded regions and words, on the context that is fed back to the LSTM, and before the vocabulary.
        attention_dropout: in the refiner and the decoder.
        refiner: whether to use a refiner; without it the decoder attends to the embedded regions directly.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        visual_dim: int,
        d_model: int = 1024,
        d_word: int | None = None,
        n_heads: int = 8,
        n_encoder_layers: int = 6,
        dropout: float = 0.5,
        attention_dropout: float = 0.1,
        max_len: int = 74,
        refiner: bool = True,
    ) -> None:
        head_width(d_model, n_heads)
        dropouts = AoADropouts(attention_dropout, BRANCH_DROPOUT, GATE_DROPOUT)
        super().__init__(
            vocab_size=vocab_size,
            visual_dim=visual_dim,
            d_model=d_model,
            d_word=d_word,
            n_heads=n_heads,
            n_memories=1,
            refiner=AoARefiner(d_model, n_heads, n_encoder_layers, dropouts) if refiner else None,
            dropout=dropout,
            attention_dropout=attention_dropout,
            max_len=max_len,
        )


def _dropout_factors(dropout: nn.Dropout, like: Tensor, shape: tuple[int, ...]) -> Tensor | None:
    """Random factors by which dropout multiplies a tensor of this shape; None where dropout is off."""
    if not dropout.training or not dropout.p:
        return None
    return F.dropout(like.new_ones(shape), dropout.p)


_LSTM = "core.att_lstm"


class _AoAConverter(Converter):
    def tensors(self, official: Mapping[str, Tensor]) -> Tensors:
        d_word = official[f"{_LSTM}.weight_ih"].shape[1] - official[f"{_LSTM}.weight_hh"].shape[1]
        return super().tensors(official) | convert_lstm(official, _LSTM, "lstm", d_word)

    def sizes(self, official: Mapping[str, Tensor]) -> dict[str, Any]:
        return {size: value for size, value in super().sizes(official).items() if value}  # there may be no refiner


CONVERTER = _AoAConverter(
    source="AoANet",
    renames=(
        (r"self_attn\.linears\.0\b", "mixer.query"),
        (r"self_attn\.linears\.1\b", "mixer.key"),
        (r"self_attn\.linears\.2\b", "mixer.value"),
        (r"self_attn\.aoa_layer\.0\b", "mixer.gate.mix"),
        (r"sublayer\.0\.norm\b", "mixer_norm"),
        (r"\ba_2\b", "gain"),
        (r"\bb_2\b", "shift"),
        (r"^embed\.", "embedding."),
        (r"^att_embed\.", "region_embedding."),
        (r"^ctx2att\b", "memories.0"),
        (r"^core\.att2ctx\.0\b", "gate.mix"),
        (r"^core\.attention\.norm\b", "query_norm"),
        (r"^core\.attention\.linears\.0\b", "query"),
        (r"^logit\b", "vocabulary"),
    ),
    unused=r"^core\.att_lstm\.",
    size_axes={
        "vocab_size": ("logit.weight", 0),
        "visual_dim": ("att_embed.0.weight", 1),
        "d_model": ("att_embed.0.weight", 0),
        "d_word": ("embed.0.weight", 1),
    },
    stacks={"n_encoder_layers": "refiner.layers"},
    required=lstm_names(_LSTM),
    hint="n_heads=... must be that of the training, and the variant that of the checkpoint",
)
"""Weights of the authors' code, where 0 is begin, end and padding; the last of the V others is the unknown word.

Embedding and logits have V + 1 rows. Shapes do not determine `n_heads`.
"""
