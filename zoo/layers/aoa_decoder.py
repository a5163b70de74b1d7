"""The decoder of AoANet (Huang et al., ICCV 2019, section 3.2.2) and of the Image Transformer (He et al., ACCV 2020).

An LSTM whose state asks the image, and attention on attention between the answer and that state. Where codes and papers
differ, this follows the codes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from zoo.captioner import DecodingState, Memory
from zoo.errors import ZooError
from zoo.layers.annotated_norm import AnnotatedNorm
from zoo.layers.aoa import AttentionOnAttention
from zoo.layers.attention import attend, split_heads


class AoADecoder(nn.Module):
    """h = LSTM([word; mean + context], h); context = GLU(W [1/M sum_m attend_m(norm(h)); h]); p = softmax(W context).

    Args:
        vocab_size, d_model, d_word, n_heads, max_len: sizes.
        n_memories: M, how many keys and values of the image one query meets; their answers are averaged.
        values_first: which half of a memory's projection holds the values. The authors' codes differ in it.
        dropout: on words, on the context that goes back into the LSTM, and before the vocabulary.
        attention_dropout: on the attention's probabilities.
    """

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        d_word: int,
        n_heads: int,
        max_len: int,
        *,
        n_memories: int,
        values_first: bool,
        dropout: float,
        attention_dropout: float,
    ) -> None:
        super().__init__()
        if d_model % n_heads:
            raise ZooError(f"d_model {d_model} is not a multiple of n_heads {n_heads}")
        self.n_heads = n_heads
        self.max_len = max_len
        self.values_first = values_first
        self.words = nn.Embedding(vocab_size, d_word)
        self.lstm = nn.LSTMCell(d_word + d_model, d_model)
        self.norm = AnnotatedNorm(d_model)
        self.query = nn.Linear(d_model, d_model)
        self.memories = nn.ModuleList(nn.Linear(d_model, 2 * d_model) for _ in range(n_memories))
        self.gate = AttentionOnAttention(d_model)
        self.vocabulary = nn.Linear(d_model, vocab_size)
        self.dropout = nn.Dropout(dropout)
        self.attention_dropout = nn.Dropout(attention_dropout)

    def start(self, memory: Memory) -> DecodingState:
        """The state before the first token: keys and values (B, M * H, L, d_k) and the mean region (B, D) of images."""
        heads = [
            [split_heads(half, self.n_heads) for half in project(memory.features).chunk(2, -1)]
            for project in self.memories
        ]
        first, second = (torch.cat(halves, 1) for halves in zip(*heads, strict=True))
        keys, values = (second, first) if self.values_first else (first, second)
        weights = memory.mask[..., None].to(memory.features.dtype)
        mean = (memory.features * weights).sum(1) / weights.sum(1).clamp(min=1)
        zeros = torch.zeros_like(mean)
        rows = {"hidden": zeros, "cell": zeros, "context": zeros}
        return DecodingState({"keys": keys, "values": values, "mean": mean, "mask": memory.mask}, rows)

    def step(self, tokens: Tensor, state: DecodingState) -> tuple[Tensor, DecodingState]:
        """One position: tokens (R,) to logits (R, V)."""
        state = self._move(self._embed(tokens), state)
        return self._logits(state.rows["context"]), state

    def decode(self, memory: Memory, tokens: Tensor) -> Tensor:
        """Tokens (B * n, T) to logits (B * n, T, V); the vocabulary is met once for all positions."""
        if tokens.shape[1] > self.max_len:
            raise ZooError(f"a caption of {tokens.shape[1]} tokens is longer than max_len {self.max_len}")
        state = self.start(memory).expand(tokens.shape[0] // memory.batch_size)
        contexts = []
        for word in self._embed(tokens).unbind(1):
            state = self._move(word, state)
            contexts.append(state.rows["context"])
        return self._logits(torch.stack(contexts, 1))

    def _embed(self, tokens: Tensor) -> Tensor:
        embedded: Tensor = self.dropout(self.words(tokens).relu())
        return embedded

    def _logits(self, contexts: Tensor) -> Tensor:
        logits: Tensor = self.vocabulary(self.dropout(contexts))
        return logits

    def _move(self, words: Tensor, state: DecodingState) -> DecodingState:
        """Embedded words (R, E) to the next state; the rows of an image stand together."""
        images, rows = state.images, state.rows
        mean = images["mean"][:, None]
        seen = self.dropout(rows["context"]).view(mean.shape[0], -1, mean.shape[-1]) + mean
        hidden, cell = self.lstm(torch.cat((words, seen.flatten(0, 1)), -1), (rows["hidden"], rows["cell"]))
        queries = self.query(self.norm(hidden)).view(seen.shape)
        heads = split_heads(queries, self.n_heads).repeat(1, len(self.memories), 1, 1)
        rate = self.attention_dropout.p if self.training else 0.0
        attended = attend(heads, images["keys"], images["values"], images["mask"], rate)
        answer = torch.stack(attended.chunk(len(self.memories), 1)).mean(0)
        context = self.gate(answer.transpose(1, 2).reshape(hidden.shape), hidden)
        return DecodingState(images, {"hidden": hidden, "cell": cell, "context": context})
