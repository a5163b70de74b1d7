"""AoANet, and the base class of its descendants.

L. Huang, W. Wang, J. Chen, X.-Y. Wei: "Attention on Attention for Image Captioning", ICCV 2019 (arXiv:1908.06954).
Code: https://github.com/husthuaan/AoANet (MIT). Where code and paper differ, this follows the code.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.captioner import Memory, Visual, VisualSpec
from zoo.errors import ZooError
from zoo.layers.annotated_norm import AnnotatedNorm
from zoo.layers.aoa import AoADropouts, AoARefiner, AttentionOnAttention, MemoriesAttention
from zoo.layers.aoa_scan import AoAWeights, scan_aoa
from zoo.layers.attention import joined
from zoo.layers.lstm import LSTMCell
from zoo.recurrent import RecurrentCaptioner, Rows, mean_of_valid, project_words


class AoACaptioner(RecurrentCaptioner):
    """Refined regions, and an LSTM with attention on attention: AoANet and its descendants.

    h = LSTM([word; mean + context], h); context = GLU(W [1/M sum_m attend_m(norm(h)); h]); p = softmax(W context).

    Args:
        vocab_size, visual_dim, d_model, d_word, n_heads, max_len: sizes.
        dropout: on embedded regions and words, on the context that is fed back to the LSTM, and before the vocabulary.
        attention_dropout: on the probabilities of the decoder's attention.
        refiner: of the embedded regions; without it the decoder attends to them directly.
        n_memories: M, the number of keys and values of the image for each query; the answers are averaged.
        values_first: which half of a memory's projection are the values; the authors' two codebases differ.
    """

    per_row = ("image",)

    def __init__(
        self,
        *,
        vocab_size: int,
        visual_dim: int,
        d_model: int,
        d_word: int,
        n_heads: int,
        max_len: int,
        dropout: float,
        attention_dropout: float,
        refiner: AoARefiner | None,
        n_memories: int,
        values_first: bool,
    ) -> None:
        super().__init__()
        if d_model % n_heads:
            raise ZooError(f"d_model {d_model} is not a multiple of n_heads {n_heads}")
        self.visual = VisualSpec("regions", visual_dim)
        self.vocab_size, self.max_len, self.d_model, self.n_heads = vocab_size, max_len, d_model, n_heads
        self.region_embedding = nn.Sequential(nn.Linear(visual_dim, d_model), nn.ReLU(), nn.Dropout(dropout))
        self.refiner = refiner
        self.memories = nn.ModuleList(nn.Linear(d_model, 2 * d_model) for _ in range(n_memories))
        self.values_first = values_first
        self.embedding = nn.Sequential(nn.Embedding(vocab_size, d_word), nn.ReLU(), nn.Dropout(dropout))
        self.lstm = LSTMCell(d_word, d_model, 2 * d_model)
        self.query_norm = AnnotatedNorm(d_model)
        self.query = nn.Linear(d_model, d_model)
        self.attention = MemoriesAttention(n_heads, n_memories, attention_dropout)
        self.context_dropout = nn.Dropout(dropout)
        self.gate = AttentionOnAttention(d_model)
        self.output_dropout = nn.Dropout(dropout)
        self.vocabulary = nn.Linear(d_model, vocab_size)

    def relations(self, visual: Visual, mask: Tensor) -> tuple[Tensor, ...]:  # noqa: ARG002  # none here
        """Further inputs of the refiner besides the regions' features."""
        return ()

    def encode(self, visual: Visual) -> Memory:
        """See `Captioner.encode`; keys and values (B, H, M * L, d_k), and what the mean region adds to the LSTM."""
        features, mask = self.look(visual)
        regions = self.region_embedding(features)
        if self.refiner is not None:
            regions = self.refiner(regions, mask, *self.relations(visual, mask))
        memories: list[nn.Linear] = list(self.memories)  # type: ignore[arg-type]  # ModuleList is not generic
        projected = F.linear(regions, *joined(*memories)).view(*mask.shape, len(memories), 2, -1)
        first, second = projected.unbind(3)
        keys, values = (second, first) if self.values_first else (first, second)
        mean = mean_of_valid(regions.masked_fill(~mask[..., None], 0.0), mask)
        image = F.linear(
            mean, self.lstm.recurrent.weight[:, : self.d_model], self.lstm.input.bias + self.lstm.recurrent.bias
        )
        keys, values, barred = self.attention.prepare(keys, values, mask)
        return Memory(regions, mask, {"keys": keys, "values": values, "mean": mean, "image": image, "barrier": barred})

    def cross_attention_modules(self) -> Sequence[nn.Module]:
        """See `Captioner.cross_attention_modules`."""
        return (self.attention,)

    def first_rows(self, memory: Memory) -> Rows:
        """See `RecurrentCaptioner.first_rows`."""
        return self.blank_rows(memory, "hidden", "cell", "context", width=self.d_model)

    def shared_tensors(self) -> dict[str, Tensor]:
        """See `RecurrentCaptioner.shared_tensors`; one product of the hidden state, for the query and for the gate.

        The query is W norm(h) + b = W G (h - mean(h)) / (deviation + eps) + (W s + b), where G is the norm's gain and s
        its shift; W G less the means of its rows needs no mean of h.
        """
        norm, query, mix = self.query_norm, self.query, self.gate.mix
        scaled = query.weight * norm.gain
        of_hidden = torch.cat((scaled - scaled.mean(1, keepdim=True), mix.weight[:, self.d_model :]))
        bias = torch.cat((torch.zeros_like(query.bias), mix.bias))
        constant = torch.addmv(query.bias, query.weight, norm.shift)
        return {"of_hidden": of_hidden, "hidden_bias": bias, "query": constant}

    def word_inputs(self, words: Tensor, images: dict[str, Tensor]) -> Tensor:
        """See `RecurrentCaptioner.word_inputs`; the mean region is an input at every word."""
        return project_words(words, self.lstm.input.weight, images["image"])

    def advance(self, inputs: Tensor, rows: Rows, images: dict[str, Tensor]) -> tuple[Tensor, Rows]:
        """See `RecurrentCaptioner.advance`; the rows of an image are adjacent and share its keys and values."""
        width = self.d_model
        past = torch.cat((self.context_dropout(rows["context"]), rows["hidden"]), 1)
        hidden, cell = self.lstm(inputs, past, rows["cell"])
        query, mixed = torch.split(F.linear(hidden, images["of_hidden"], images["hidden_bias"]), [width, 2 * width], 1)
        queries = torch.addcdiv(images["query"], query, hidden.std(1, keepdim=True) + self.query_norm.eps)
        answer = self.attention(queries, images["keys"], images["values"], images["barrier"])
        context = F.glu(torch.addmm(mixed, answer, self.gate.mix.weight[:, :width].t()), 1)
        return context, {"hidden": hidden, "cell": cell, "context": context}

    def scan(self, inputs: Tensor, images: dict[str, Tensor]) -> Tensor:
        """See `RecurrentCaptioner.scan`."""
        keys, memories = images["keys"], self.attention.n_memories
        (batch, n_heads, places, _), (rows, length, _) = keys.shape, inputs.shape
        of_context, of_hidden = self.lstm.recurrent.weight.split_with_sizes([self.d_model, self.d_model], 1)
        norm, query = self.query_norm, self.query  # the norm's gain and shift go into the query's matrix
        weights = AoAWeights(
            torch.cat((of_hidden, of_context), 1),
            query.weight * norm.gain,
            torch.addmv(query.bias, query.weight, norm.shift),
            self.gate.mix.weight,
            self.gate.mix.bias,
        )
        dropped = (
            _mask(self.context_dropout, inputs, (length, rows, self.d_model)),
            _mask(self.attention.dropout, inputs, (length, batch * n_heads, rows // batch, places)),
        )
        return scan_aoa(inputs, (keys, images["values"], images["barrier"]), weights, norm.eps, memories, dropped)


def _mask(dropout: nn.Dropout, like: Tensor, shape: tuple[int, ...]) -> Tensor | None:
    """What dropout multiplies by; None if nothing is dropped."""
    if not dropout.training or not dropout.p:
        return None
    return F.dropout(like.new_ones(shape), dropout.p)


class AoANet(AoACaptioner):
    """AoANet: regions refined by attention on attention, and an LSTM with attention on attention.

    Args:
        vocab_size, visual_dim, d_model, n_heads, n_encoder_layers: sizes.
        d_word: width of word embeddings; d_model if not given.
        dropout: see `AoACaptioner`.
        attention_dropout, branch_dropout, gate_dropout: in the refiner; the first one in the decoder too.
        max_len: maximum caption length; no parameter depends on it.
        refiner: whether to use a refiner.
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
        branch_dropout: float = 0.1,
        gate_dropout: float = 0.3,
        max_len: int = 74,
        refiner: bool = True,
    ) -> None:
        dropouts = AoADropouts(attention_dropout, branch_dropout, gate_dropout)
        super().__init__(
            vocab_size=vocab_size,
            visual_dim=visual_dim,
            d_model=d_model,
            d_word=d_model if d_word is None else d_word,
            n_heads=n_heads,
            max_len=max_len,
            dropout=dropout,
            attention_dropout=attention_dropout,
            refiner=AoARefiner(d_model, n_heads, n_encoder_layers, dropouts) if refiner else None,
            n_memories=1,
            values_first=True,
        )
