"""GCN-LSTM: graph convolution over related regions, below an attention LSTM and a language LSTM.

T. Yao, Y. Pan, Y. Li, T. Mei: "Exploring Visual Relationship for Image Captioning", ECCV 2018 (arXiv:1809.07041). No
code came with the paper. Numerically equal to `GCN-LSTM` of https://github.com/YehLi/xmodaler (Apache-2.0), a later
library by a co-author, which is given the labels of its edges; those of boxes are second hand, see
`zoo.layers.spatial_relations`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.captioner import Memory, Visual, VisualSpec
from zoo.errors import ZooError
from zoo.layers.looped import Looped, LoopedLinear, SharedMatrix
from zoo.layers.lstm import LSTMCell
from zoo.layers.relation_graph import RelationGraph, label_matrix
from zoo.layers.spatial_relations import N_LABELS, N_REGAT_LABELS, regat_labels, spatial_labels
from zoo.recurrent import RecurrentCaptioner, Rows, mean_of_valid, project_words

_LABELS = {"spatial": N_LABELS, "regat": N_REGAT_LABELS, "given": 21, "none": 1}
"""By graph; given labels are by default those of the paper's semantic graph, 20 predicates and 0."""


class DroppedAttention(Looped):
    """softmax(w . dropout(tanh(W_k a + b + W_q h))) over the valid regions a, of which the sum is the answer."""

    def __init__(self, d_query: int, d_regions: int, d_attention: int, dropout: float) -> None:
        super().__init__()
        self.query = LoopedLinear(d_query, d_attention, bias=False)
        self.key = nn.Linear(d_regions, d_attention)
        self.score = nn.Linear(d_attention, 1, bias=False)
        self.dropout = nn.Dropout(dropout)

    def project(self, regions: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Keys (B, L, A) of an image, and a barrier (B, 1, L) to be added to the scores; `mask` is true where valid."""
        # The lowest number, not minus infinity: an image without valid regions attends to all of them evenly.
        lowest = torch.finfo(regions.dtype).min
        barrier = torch.zeros_like(mask, dtype=regions.dtype).masked_fill_(~mask, lowest)
        return self.key(regions), barrier[:, None]

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor, barrier: Tensor) -> Tensor:
        """Queries (B * n, D_q), the n rows of an image adjacent, and values (B, L, D_v) to (B * n, D_v)."""
        asked = self.query(queries).view(keys.shape[0], -1, 1, keys.shape[2])
        scores = self.dropout((keys[:, None] + asked).tanh()) @ self.score.weight.view(-1)
        weights = (scores + barrier).softmax(-1)
        return self.matrix("values", lambda: SharedMatrix(values.transpose(1, 2)))(weights).flatten(0, 1)


class GCNLSTM(RecurrentCaptioner):
    """Regions convolved along the edges of a graph; then as Up-Down, on the regions' own channels.

    Args:
        vocab_size, visual_dim, max_len: sizes.
        d_model: of both LSTMs.
        d_embedding: of the words; d_model by default.
        d_attention: of the attention's tanh layer.
        dropout: of convolved regions, words, the attention's tanh layer, the inputs of the language LSTM, and before
            the logits.
        graph: labels of edges between boxes. "spatial" has the 11 classes, "regat" those of ReGAT's released code with
            its faults, which depend on the order of the regions; "none" is a graph without edges. "given" labels are
            those of a scene graph's relations, a semantic graph.
        n_labels: labels of the edges, with 0; those of `graph` if not given.
        picture: width and height that boxes are scaled to, since only their shares of the image are known.
        identity: add a region itself to what its edges bring, as in the released code; False is the paper's equation,
            second hand too.
        quirks: reproduce a fault of the released code: padding is part of the graph and of the mean.
    """

    per_row = ("image",)

    def __init__(
        self,
        *,
        vocab_size: int,
        visual_dim: int,
        d_model: int = 1024,
        dropout: float = 0.5,
        max_len: int = 20,
        d_embedding: int | None = None,
        d_attention: int = 512,
        graph: Literal["spatial", "regat", "given", "none"] = "spatial",
        n_labels: int | None = None,
        picture: Sequence[int] = (500, 500),
        identity: bool = True,
        quirks: bool = False,
    ) -> None:
        super().__init__()
        if graph not in _LABELS:
            raise ZooError(f"graph cannot be {graph!r}", f"it is one of {', '.join(_LABELS)}")
        fewest = 1 if graph == "given" else _LABELS[graph]
        if n_labels is not None and n_labels < fewest:
            raise ZooError(f"n_labels must be at least {fewest} of graph {graph!r}, not {n_labels}")
        if len(picture) != 2 or min(picture) < 1:
            raise ZooError(f"picture must be a width and a height in pixels, not {picture}", "for example 640,480")
        self.visual = VisualSpec("regions", visual_dim, graph="labels" if graph == "given" else "none")
        self.vocab_size, self.max_len, self.d_model = vocab_size, max_len, d_model
        self.graph, self.picture, self.quirks = graph, tuple(picture), quirks
        d_embedding = d_embedding or d_model
        self.convolution = RelationGraph(visual_dim, n_labels or _LABELS[graph], dropout, identity=identity)
        self.embedding = nn.Sequential(nn.Embedding(vocab_size, d_embedding), nn.ReLU(), nn.Dropout(dropout))
        self.lstm = LSTMCell(d_embedding, d_model, 2 * d_model)
        self.image_gates = nn.Linear(visual_dim, 4 * d_model, bias=False)
        nn.init.uniform_(self.image_gates.weight, -(d_model**-0.5), d_model**-0.5)
        self.attention = DroppedAttention(d_model, visual_dim, d_attention, dropout)
        self.language_dropout = nn.Dropout(dropout)
        self.language_lstm = LSTMCell(visual_dim + d_model, d_model, d_model)
        self.output_dropout = nn.Dropout(dropout)
        self.vocabulary = nn.Linear(d_model, vocab_size)

    def encode(self, visual: Visual) -> Memory:
        """See `Captioner.encode`."""
        features, mask = self.look(visual)
        return self.encode_graph(features, mask, self._relations(visual, features))

    def encode_graph(self, features: Tensor, mask: Tensor, relations: Tensor) -> Memory:
        """Encode regions with labels of one's own, for example of a semantic graph.

        Args:
            features: (B, N, C); mask: (B, N), true where valid.
            relations: (B, N, N) int64, the label of the edge from region i to region j, 0 for none; below `n_labels`.
        """
        if self.quirks:
            regions = self.convolution(features, relations)
            mean = regions.mean(1)
        else:
            pairs = mask[:, None] & mask[:, :, None]
            regions = self.convolution(features, relations * pairs) * mask[..., None]
            mean = mean_of_valid(regions, mask)
        keys, barrier = self.attention.project(regions, mask)
        image = F.linear(mean, self.image_gates.weight, self.lstm.input.bias + self.lstm.recurrent.bias)
        return Memory(regions, mask, {"keys": keys, "values": regions, "barrier": barrier, "image": image})

    def _relations(self, visual: Visual, features: Tensor) -> Tensor:
        boxes = visual.boxes
        if self.graph == "none":
            images, count = features.shape[:2]
            return features.new_zeros(images, count, count, dtype=torch.long)
        if self.graph == "given":
            if visual.relations is None:
                raise ZooError(
                    "the labels of this model's graph are given, and visual input has none",
                    "set relations, or create the model with graph='spatial'",
                )
            return label_matrix(visual.relations, features.shape[1])
        if boxes is None:
            raise ZooError("this model needs the boxes of its regions for their graph, and got none")
        pixels = boxes * boxes.new_tensor((*self.picture, *self.picture))
        label = spatial_labels if self.graph == "spatial" else regat_labels
        return label(pixels, math.hypot(*self.picture))

    def cross_attention_modules(self) -> Sequence[nn.Module]:
        """See `Captioner.cross_attention_modules`."""
        return (self.attention,)

    def looped_modules(self) -> Sequence[nn.Module]:
        """See `RecurrentCaptioner.looped_modules`."""
        return (self.lstm, self.language_lstm, *self.attention.modules())

    def first_rows(self, memory: Memory) -> Rows:
        """See `RecurrentCaptioner.first_rows`."""
        names = ("language", "attention", "language_cell", "attention_cell")
        return self.blank_rows(memory, *names, width=self.d_model)

    def word_inputs(self, words: Tensor, images: dict[str, Tensor]) -> Tensor:
        """See `RecurrentCaptioner.word_inputs`; the mean of the regions is an input at every word."""
        return project_words(words, self.lstm.input.weight, images["image"])

    def advance(self, inputs: Tensor, rows: Rows, images: dict[str, Tensor]) -> tuple[Tensor, Rows]:
        """See `RecurrentCaptioner.advance`."""
        past = torch.cat((rows["language"], rows["attention"]), 1)
        attention, attention_cell = self.lstm(inputs, past, rows["attention_cell"])
        attended = self.attention(attention, images["keys"], images["values"], images["barrier"])
        read = self.language_dropout(torch.cat((attended, attention), 1))
        language, language_cell = self.language_lstm.read(read, (rows["language"],), rows["language_cell"])
        cells = {"language_cell": language_cell, "attention_cell": attention_cell}
        return language, {"language": language, "attention": attention, **cells}
