"""A GRU that looks at the cells of the image before each word: a model to begin from.

B images, n captions or W beams an image, L cells of C channels, T words, V vocabulary entries.
"""

import torch
from torch import Tensor, nn

from zoo import Captioner, DecodingState, Memory, ModelCard, Visual, VisualSpec, ZooError, register_model


class Mine(Captioner):
    """Attention with the state of the GRU as its query, and one layer to the vocabulary."""

    def __init__(
        self, *, vocab_size: int, visual_dim: int, d_model: int = 256, dropout: float = 0.1, max_len: int = 20
    ) -> None:
        super().__init__()
        self.visual = VisualSpec("grid", visual_dim)  # C; the harness brings what is asked for here
        self.vocab_size = vocab_size
        self.max_len = max_len
        self.cells = nn.Linear(visual_dim, d_model)
        self.words = nn.Embedding(vocab_size, d_model)
        self.gru = nn.GRUCell(2 * d_model, d_model)
        self.dropout = nn.Dropout(dropout)
        self.vocabulary = nn.Linear(d_model, vocab_size)

    def encode(self, visual: Visual) -> Memory:
        """Once an image: cells (B, L, d_model), and the mask (B, L), true where a cell is no padding."""
        features, mask = visual.valid_features(self.cells.weight.dtype)  # (B, L, C), zeros where padded
        return Memory(self.cells(features), mask)

    def start(self, memory: Memory) -> DecodingState:
        """The state before the first word: `images` have one row an image, `rows` one a caption or beam."""
        valid = memory.mask[..., None]
        mean = (memory.features * valid).sum(1) / valid.sum(1).clamp(min=1)  # (B, d_model)
        return DecodingState(images={"cells": memory.features, "mask": memory.mask}, rows={"hidden": mean})

    def step(self, tokens: Tensor, state: DecodingState) -> tuple[Tensor, DecodingState]:
        """One word a row, tokens (B * W,), to the logits (B * W, V) of the next one, and the state behind it."""
        hidden = state.rows["hidden"]
        cells = state.images["cells"]
        mask = state.images["mask"]
        queries = hidden.view(len(cells), -1, cells.shape[-1])  # (B, W, d_model): the beams of an image share its cells
        scores = (queries @ cells.mT).masked_fill(~mask[:, None], -1e4)  # (B, W, L)
        context = (scores.softmax(-1) @ cells).flatten(0, 1)  # (B * W, d_model)
        hidden = self.gru(torch.cat((self.words(tokens), context), 1), hidden)
        return self.vocabulary(self.dropout(hidden)), DecodingState(state.images, {"hidden": hidden})

    def decode(self, memory: Memory, tokens: Tensor) -> Tensor:
        """Whole captions in training, tokens (B * n, T), to logits (B * n, T, V): each image's rows repeat n times."""
        if tokens.shape[1] > self.max_len:
            raise ZooError(f"a caption of {tokens.shape[1]} tokens is longer than max_len {self.max_len}")
        state = self.start(memory).expand(len(tokens) // memory.batch_size)
        logits = []
        for words in tokens.unbind(1):
            next_logits, state = self.step(words, state)
            logits.append(next_logits)
        return torch.stack(logits, 1)


register_model(
    ModelCard(
        name="mine",
        entry=Mine,
        summary="a GRU that attends to the cells of the image",
        paper="unpublished",
        year=2026,
        source="this file",
        licence="MIT",
        visual="grid",
        tiny={"d_model": 16, "max_len": 12},
    )
)
