"""Base class of captioners with a recurrent decoder: teacher forcing and stepping run the same code."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.captioner import Captioner, DecodingState, Memory, Visual, VisualSpec
from zoo.errors import ZooError
from zoo.layers.lstm import LSTMCell
from zoo.precision import autocasts, full_precision, no_autocast

Rows = dict[str, Tensor]


class RecurrentCaptioner(Captioner):
    """A captioner whose decoder is a recurrence over words, such as an LSTM.

    `encode` computes everything that does not depend on words. What depends on the words but not on the state is
    computed for all positions at once, so that the loop of teacher forcing contains only the recurrence `advance`.
    Stepping runs the same code on one position.

    Attributes:
        d_model: width of the state h_t from which words are predicted.
        embedding: maps tokens to word vectors.
        lstm: reads the words, unless the model overrides `word_inputs`.
        vocabulary, output_dropout: map outputs to logits, unless the model overrides `predict`.
        per_row: names of tensors in `Memory.extra` that `advance` gets with one row per caption or beam instead of
            one per image (`DecodingState.repeated`).
        states: names of the vectors of the recurrent state, each d_model wide, unless the model overrides `first_rows`.
        attention: the attention of words to the image, where there is one.
    """

    d_model: int
    embedding: nn.Module
    lstm: LSTMCell
    vocabulary: nn.Linear
    output_dropout: nn.Dropout
    per_row: tuple[str, ...] = ()
    states: tuple[str, ...] = ("hidden", "cell")

    def __init_subclass__(cls, **options: Any) -> None:
        """Leave the `scan` of the base out where `advance` is another: it would train another recurrence."""
        super().__init_subclass__(**options)
        if "advance" in vars(cls) and "scan" not in vars(cls):
            cls.scan = RecurrentCaptioner.scan  # type: ignore[method-assign]

    def __init__(self, visual: VisualSpec, vocab_size: int, max_len: int, d_model: int) -> None:
        super().__init__()
        self.visual = visual
        self.vocab_size = vocab_size
        self.max_len = max_len
        self.d_model = d_model

    def first_rows(self, memory: Memory) -> Rows:
        """The state before the first word, one row per image: zeros."""
        weight = next(self.parameters())
        return {name: weight.new_zeros(memory.batch_size, self.d_model) for name in self.states}

    @abstractmethod
    def advance(self, inputs: Tensor, rows: Rows, images: dict[str, Tensor]) -> tuple[Tensor, Rows]:
        """One position of the recurrence.

        Args:
            inputs: (rows, ...), `word_inputs` at this position.
            rows: the state before it.
            images: tensors of `Memory.extra` and `shared_tensors`.

        Returns:
            The output (rows, ...), whose first d_model channels are h_t, and the next state.
        """

    def shared_tensors(self) -> dict[str, Tensor]:
        """Tensors for `advance` that depend on weights only, computed once for all words."""
        return {}

    def word_inputs(self, words: Tensor, images: dict[str, Tensor]) -> Tensor:
        """Inputs of the recurrence (rows, T, ...) from word vectors (rows, T, E), independent of the state.

        If `encode` returns "image", which includes the biases, it is added at every word.
        """
        if "image" in images:
            return project_words(words, self.lstm.input.weight, images["image"])
        return self.lstm.project(words)

    def cross_attention_modules(self) -> Sequence[nn.Module]:
        return [module for name, module in self.named_children() if name == "attention"]

    def predict(self, outputs: Tensor, words: Tensor) -> Tensor:  # noqa: ARG002
        """Logits (rows, T, V) from the outputs of `advance` (rows, T, ...) and the input word vectors (rows, T, E)."""
        logits: Tensor = self.vocabulary(self.output_dropout(outputs))
        return logits

    def scan(self, inputs: Tensor, images: dict[str, Tensor]) -> Tensor | None:  # noqa: ARG002
        """The outputs (rows, T, ...) of `advance` at all positions by a faster form in `zoo.fast`; None without one.

        `inputs` (rows, T, ...) are the `word_inputs` of all positions; the state before them is `first_rows`.
        """
        return None

    def decode(self, memory: Memory, tokens: Tensor) -> Tensor:
        return self.decode_with_states(memory, tokens)[0]

    def decode_with_states(self, memory: Memory, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """The logits of `decode`, and the states h_t (B * n, T, d_model) from which they are predicted."""
        if tokens.shape[1] > self.max_len:
            raise ZooError(f"a caption of {tokens.shape[1]} tokens is longer than max_len {self.max_len}")
        words = self.embedding(tokens)
        inputs = self.word_inputs(words, memory.extra)
        if autocasts(inputs):  # run the recurrence in full precision: casting small tensors costs more than it saves
            extra = {name: full_precision(tensor) for name, tensor in memory.extra.items()}
            inputs = full_precision(inputs)
            memory = Memory(full_precision(memory.features), memory.mask, extra)
        with no_autocast(inputs):
            outputs = self.scan(inputs, memory.extra) if inputs.requires_grad else None
            if outputs is None:
                outputs = self._advance_all(inputs, memory)
        return self.predict(outputs, words), outputs[..., : self.d_model]

    def _advance_all(self, inputs: Tensor, memory: Memory) -> Tensor:
        """The outputs (rows, T, ...) of `advance`, position by position."""
        state = self.start(memory).expand(inputs.shape[0] // memory.batch_size)
        images = state.images | state.shared | state.repeated
        rows = state.rows
        outputs = []
        for position_inputs in inputs.unbind(1):
            output, rows = self.advance(position_inputs, rows, images)
            outputs.append(output)
        return torch.stack(outputs, 1)

    def start(self, memory: Memory) -> DecodingState:
        repeated = {name: memory.extra[name] for name in self.per_row if name in memory.extra}
        return DecodingState(memory.extra, self.first_rows(memory), self.shared_tensors(), repeated)

    def step(self, tokens: Tensor, state: DecodingState) -> tuple[Tensor, DecodingState]:
        words = self.embedding(tokens[:, None])
        images = state.images | state.shared | state.repeated
        output, rows = self.advance(self.word_inputs(words, images)[:, 0], state.rows, images)
        return self.predict(output[:, None], words)[:, 0], replace(state, rows=rows)

    def valid_features(self, visual: Visual) -> tuple[Tensor, Tensor]:
        """`Visual.valid_features` in the type of the model's weights."""
        return visual.valid_features(next(self.parameters()).dtype)


def project_words(words: Tensor, weight: Tensor, added: Tensor) -> Tensor:
    """Words (B * n, T, E) times a matrix (D, E), plus a vector for each image (B, D) or for each row (B * n, D)."""
    if words.shape[1] == 1 and len(words) == len(added):
        return torch.addmm(added, words[:, 0], weight.t())[:, None]
    projected = F.linear(words, weight)
    return (projected.view(len(added), -1, added.shape[1]) + added[:, None]).view(projected.shape)


def init_words_and_vocabulary(words: nn.Embedding, vocabulary: nn.Linear) -> None:
    """Initialise uniformly in [-0.1, 0.1] and biases to zero, as ImageCaptioning.pytorch does for Show and Tell."""
    nn.init.uniform_(words.weight, -0.1, 0.1)
    nn.init.uniform_(vocabulary.weight, -0.1, 0.1)
    nn.init.zeros_(vocabulary.bias)
