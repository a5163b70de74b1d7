"""SGAE: nodes of an image re-encoded through a dictionary, and attended to beside themselves by Up-Down's two LSTMs.

X. Yang, K. Tang, H. Zhang, J. Cai: "Auto-Encoding Scene Graphs for Image Captioning", CVPR 2019. Numerically equal to
`lstm_mem4` of https://github.com/yangxuntu/SGAE (no licence stated) in its captioning of images, with and without the
image graph. Its sentence graphs, by which the authors train the dictionary before, are not here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.captioner import Memory, Visual, VisualSpec
from zoo.errors import ZooError
from zoo.layers.additive_attention import AdditiveAttention
from zoo.layers.image_graph import ImageGraph
from zoo.layers.lstm import LSTMCell
from zoo.recurrent import RecurrentCaptioner, Rows, mean_of_valid, project_words


class SGAE(RecurrentCaptioner):
    """Up-Down whose language LSTM reads two attended vectors: of the nodes, and of what the dictionary makes of them.

    Args:
        vocab_size, visual_dim, max_len: sizes.
        d_model: R, of both LSTMs, the nodes, the dictionary and the embedded image.
        d_embedding: of the words; R by default.
        d_attention: of both attentions' tanh layers.
        dropout: of embedded words, regions, image and nodes, and before the logits.
        n_entries: K, rows of the dictionary.
        graph: "none" has the regions as nodes; "given" convolves them along relations and adds nodes of relations and
            attributes, which are passed to `encode_graph` and cannot be found by `encode`.
        image_dim: channels of an image's own features; None has the mean of its regions.
    """

    per_row = ("image", "barrier")

    def __init__(
        self,
        *,
        vocab_size: int,
        visual_dim: int,
        d_model: int = 1000,
        dropout: float = 0.5,
        max_len: int = 20,
        d_embedding: int | None = None,
        d_attention: int = 512,
        n_entries: int = 10_000,
        graph: Literal["none", "given"] = "none",
        image_dim: int | None = None,
    ) -> None:
        super().__init__()
        if graph not in ("none", "given"):
            raise ZooError(f"graph cannot be {graph!r}", "it is none or given")
        if n_entries < 1:
            raise ZooError(f"n_entries must be at least 1, not {n_entries}", "the released dictionary has 10000 rows")
        self.visual = VisualSpec("regions", visual_dim)
        self.vocab_size, self.max_len, self.d_model = vocab_size, max_len, d_model
        d_embedding = d_embedding or d_model
        self.image_dim = image_dim
        self.embedding = nn.Sequential(nn.Embedding(vocab_size, d_embedding), nn.ReLU(), nn.Dropout(dropout))
        self.region_embedding = nn.Sequential(nn.Linear(visual_dim, d_model), nn.ReLU(), nn.Dropout(dropout))
        self.image_embedding = nn.Sequential(
            nn.Linear(image_dim or visual_dim, d_model), nn.ReLU(), nn.Dropout(dropout)
        )
        self.graph = ImageGraph(d_embedding, d_model, dropout) if graph == "given" else None
        self.to_dictionary = nn.Sequential(
            *(nn.Linear(d_model, d_model), nn.LeakyReLU(0.1), nn.Dropout(dropout)),
            *(nn.Linear(d_model, d_model), nn.LeakyReLU(0.1), nn.Dropout(dropout)),
            nn.Linear(d_model, d_model),
        )
        self.dictionary = nn.Parameter(torch.rand(n_entries, d_model) / 100)
        self.lstm = LSTMCell(d_embedding, d_model, 2 * d_model)
        self.image_gates = nn.Linear(d_model, 4 * d_model, bias=False)
        nn.init.uniform_(self.image_gates.weight, -(d_model**-0.5), d_model**-0.5)
        self.node_attention = AdditiveAttention(d_model, d_model, d_attention)
        self.entry_attention = AdditiveAttention(d_model, d_model, d_attention)
        del self.entry_attention.key  # that of the nodes serves both, as released
        self.language_lstm = LSTMCell(3 * d_model, d_model, d_model)
        self.output_dropout = nn.Dropout(dropout)
        self.vocabulary = nn.Linear(d_model, vocab_size)

    def encode(self, visual: Visual) -> Memory:
        """See `Captioner.encode`."""
        if self.graph is not None:
            raise ZooError(
                "the graph of this model is given, and visual input has none",
                "pass it to encode_graph, or create the model with graph='none'",
            )
        features, mask = self.look(visual)
        return self._remember(self.region_embedding(features), mask, self._mean(features, mask))

    def encode_graph(
        self, features: Tensor, mask: Tensor, relations: Tensor, attributes: Tensor, image: Tensor | None = None
    ) -> Memory:
        """Encode regions with a scene graph, whose words are entries of the vocabulary.

        Args:
            features: (B, N, C); mask: (B, N), true where valid.
            relations: (B, M, 3) int64, region of the subject, region of the object, and word; -1 where padded.
            attributes: (B, P, 1 + a) int64, a region and its words; -1 where padded.
            image: (B, image_dim), features of the image itself; the mean of its regions if not given.
        """
        if self.graph is None:
            raise ZooError("this model has no graph", "create it with graph='given'")
        nodes, valid = self.graph(self.region_embedding(features), mask, relations, attributes, self.embedding)
        return self._remember(nodes, valid, self._mean(features, mask) if image is None else image)

    def encode_regions(self, features: Tensor, mask: Tensor, image: Tensor) -> Memory:
        """Encode regions without a graph, with features (B, image_dim) of the image itself."""
        return self._remember(self.region_embedding(features), mask, image)

    def re_encode(self, nodes: Tensor) -> Tensor:
        """What the dictionary makes of nodes (..., R): softmax(h D^T) D."""
        return F.linear(self.to_dictionary(nodes), self.dictionary).softmax(-1) @ self.dictionary

    def _mean(self, features: Tensor, mask: Tensor) -> Tensor:
        if self.image_dim is not None:
            raise ZooError("this model needs features of the image itself", "create it without image_dim")
        return mean_of_valid(features, mask)

    def _remember(self, nodes: Tensor, mask: Tensor, image: Tensor) -> Memory:
        entries = self.re_encode(nodes)
        keys, barrier = self.node_attention.project(nodes, mask)
        # The score's bias enters with its gradient of zero, as in `AdditiveAttention.project`.
        bias = self.node_attention.key.bias + self.entry_attention.query.bias + 0 * self.entry_attention.score.bias
        entry_keys = 2 * F.linear(entries, self.node_attention.key.weight, bias)
        image = F.linear(
            self.image_embedding(image), self.image_gates.weight, self.lstm.input.bias + self.lstm.recurrent.bias
        )
        extra = {"keys": keys, "nodes": nodes, "entry_keys": entry_keys, "entries": entries, "barrier": barrier}
        return Memory(nodes, mask, {**extra, "image": image})

    def cross_attention_modules(self) -> Sequence[nn.Module]:
        """See `Captioner.cross_attention_modules`; the attention to the nodes themselves."""
        return (self.node_attention,)

    def looped_modules(self) -> Sequence[nn.Module]:
        """See `RecurrentCaptioner.looped_modules`."""
        return (self.lstm, self.language_lstm, self.node_attention, self.entry_attention)

    def first_rows(self, memory: Memory) -> Rows:
        """See `RecurrentCaptioner.first_rows`."""
        names = ("language", "attention", "language_cell", "attention_cell")
        return self.blank_rows(memory, *names, width=self.d_model)

    def word_inputs(self, words: Tensor, images: dict[str, Tensor]) -> Tensor:
        """See `RecurrentCaptioner.word_inputs`; the embedded image is an input at every word."""
        return project_words(words, self.lstm.input.weight, images["image"])

    def advance(self, inputs: Tensor, rows: Rows, images: dict[str, Tensor]) -> tuple[Tensor, Rows]:
        """See `RecurrentCaptioner.advance`."""
        past = torch.cat((rows["language"], rows["attention"]), 1)
        attention, attention_cell = self.lstm(inputs, past, rows["attention_cell"])
        entry = self.entry_attention(attention, images["entry_keys"], images["entries"], images["barrier"])
        node = self.node_attention(attention, images["keys"], images["nodes"], images["barrier"])
        language, language_cell = self.language_lstm.read(
            torch.cat((entry, node, attention), 1), (rows["language"],), rows["language_cell"]
        )
        names = ("language", "attention", "language_cell", "attention_cell")
        return language, dict(zip(names, (language, attention, language_cell, attention_cell), strict=True))
