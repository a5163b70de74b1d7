"""What captioners with a recurrent decoder have in common: looking at the image, teacher forcing and stepping."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace

import torch
from torch import Tensor, nn

from zoo.captioner import Captioner, DecodingState, Memory, Visual
from zoo.errors import ZooError
from zoo.layers.lstm import LSTMCell

Rows = dict[str, Tensor]
"""The recurrent state: tensors with one row a caption or beam."""


class RecurrentCaptioner(Captioner):
    """A captioner whose `encode` computes all that words do not change, and whose state is a few vectors a row.

    What depends on the words alone is computed for all positions at once, so that the loop of teacher forcing holds
    nothing but the recurrence itself. Stepping runs the same code on one position.

    Attributes:
        d_model: width of the state h_t that words follow from.
        embedding: tokens to word vectors.
        lstm: what reads the words, unless a model has `word_inputs` of its own.
        vocabulary, output_dropout: outputs to logits, unless a model has a `predict` of its own.
    """

    d_model: int
    embedding: nn.Module
    lstm: LSTMCell
    vocabulary: nn.Linear
    output_dropout: nn.Dropout

    @abstractmethod
    def first_rows(self, memory: Memory) -> Rows:
        """The state before the first word, one row an image."""

    @abstractmethod
    def advance(self, inputs: Tensor, rows: Rows, images: dict[str, Tensor]) -> tuple[Tensor, Rows]:
        """One position: its `word_inputs` (rows, ...) and the state to its output (rows, ...) and the next state.

        The output begins with h_t, in d_model channels.
        """

    def word_inputs(self, words: Tensor, images: dict[str, Tensor]) -> Tensor:  # noqa: ARG002
        """What words (rows, T, E) give to the recurrence (rows, T, ...), whatever was said before them."""
        return self.lstm.project(words)

    def predict(self, outputs: Tensor, words: Tensor) -> Tensor:  # noqa: ARG002
        """Logits (rows, T, V) from the outputs of `advance` (rows, T, ...) and the words that went in (rows, T, E)."""
        logits: Tensor = self.vocabulary(self.output_dropout(outputs))
        return logits

    def decode(self, memory: Memory, tokens: Tensor) -> Tensor:
        """See `Captioner.decode`."""
        return self.decode_with_states(memory, tokens)[0]

    def decode_with_states(self, memory: Memory, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """`decode`, and the states h_t (B * n, T, d_model) behind its logits."""
        if tokens.shape[1] > self.max_len:
            raise ZooError(f"a caption of {tokens.shape[1]} tokens is longer than max_len {self.max_len}")
        state = self.start(memory).expand(tokens.shape[0] // memory.batch_size)
        words, rows, outputs = self.embedding(tokens), state.rows, []
        for inputs in self.word_inputs(words, state.images).unbind(1):
            output, rows = self.advance(inputs, rows, state.images)
            outputs.append(output)
        whole = torch.stack(outputs, 1)
        return self.predict(whole, words), whole[..., : self.d_model]

    def start(self, memory: Memory) -> DecodingState:
        """See `Captioner.start`."""
        return DecodingState(memory.extra, self.first_rows(memory))

    def step(self, tokens: Tensor, state: DecodingState) -> tuple[Tensor, DecodingState]:
        """See `Captioner.step`."""
        words = self.embedding(tokens[:, None])
        output, rows = self.advance(self.word_inputs(words, state.images)[:, 0], state.rows, state.images)
        return self.predict(output[:, None], words)[:, 0], replace(state, rows=rows)

    def blank_rows(self, memory: Memory, *names: str, width: int) -> Rows:
        """States of zeros (B, width)."""
        return {name: self._weight.new_zeros(memory.batch_size, width) for name in names}

    @property
    def _weight(self) -> Tensor:
        """Some weight, for type and device."""
        return next(self.parameters())

    def look(self, visual: Visual) -> tuple[Tensor, Tensor]:
        """See `Visual.valid_features`; in the type of the weights."""
        return visual.valid_features(self._weight.dtype)


def mean_of_valid(features: Tensor, mask: Tensor) -> Tensor:
    """The mean (B, C) over the valid ones of features (B, L, C) that are blank elsewhere; zeros if none is valid."""
    return features.sum(1) / mask.sum(1, keepdim=True).clamp(min=1)


def init_words_and_vocabulary(words: nn.Embedding, vocabulary: nn.Linear) -> None:
    """Uniform in [-0.1, 0.1] and no bias, as Show and Tell and Att2in begin in ImageCaptioning.pytorch."""
    nn.init.uniform_(words.weight, -0.1, 0.1)
    nn.init.uniform_(vocabulary.weight, -0.1, 0.1)
    nn.init.zeros_(vocabulary.bias)
