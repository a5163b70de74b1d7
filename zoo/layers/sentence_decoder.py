"""The second decoder of SGAE: Up-Down's two LSTMs, with attention to the nodes of a sentence's graph.

X. Yang, K. Tang, H. Zhang, J. Cai: "Auto-Encoding Scene Graphs for Image Captioning", CVPR 2019; `ssg_core` of their
released code.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.layers.additive_attention import AdditiveAttention
from zoo.layers.lstm import LSTMCell
from zoo.layers.sentence_graph import SentenceGraph

Rows = dict[str, Tensor]


class SentenceDecoder(nn.Module):
    """The graph of a sentence, and the attention LSTM [h_language; image; word] with the language LSTM above it.

    Words, their output layer and the dictionary are the captioner's own.

    Args:
        d_embedding: of the words.
        d_model: R, of both LSTMs, the nodes and the embedded image.
        d_attention: of the attention's tanh layer.
        dropout: in the graph.
    """

    def __init__(self, d_embedding: int, d_model: int, d_attention: int, dropout: float) -> None:
        super().__init__()
        self.graph = SentenceGraph(d_embedding, d_model, dropout)
        self.lstm = LSTMCell(d_embedding, d_model, 2 * d_model)
        self.image_gates = nn.Linear(d_model, 4 * d_model, bias=False)
        nn.init.uniform_(self.image_gates.weight, -(d_model**-0.5), d_model**-0.5)
        self.attention = AdditiveAttention(d_model, d_model, d_attention)
        self.language_lstm = LSTMCell(2 * d_model, d_model, d_model)

    def remember(self, nodes: Tensor, mask: Tensor, image: Tensor) -> dict[str, Tensor]:
        """What every word reads: nodes (B, L, R) with their mask, and the embedded image (B, R)."""
        keys, barrier = self.attention.project(nodes, mask)
        image = F.linear(image, self.image_gates.weight, self.lstm.input.bias + self.lstm.recurrent.bias)
        return {
            "sentence_keys": keys,
            "sentence_nodes": nodes,
            "sentence_barrier": barrier,
            "sentence_image": image,
        }

    @staticmethod
    def remembers(images: dict[str, Tensor]) -> bool:
        """Whether this is of a sentence's graph, and not of an image."""
        return "sentence_nodes" in images

    def looped_modules(self) -> Sequence[nn.Module]:
        """See `RecurrentCaptioner.looped_modules`."""
        return (self.lstm, self.language_lstm, self.attention)

    def advance(self, inputs: Tensor, rows: Rows, images: dict[str, Tensor]) -> tuple[Tensor, Rows]:
        """See `RecurrentCaptioner.advance`."""
        past = torch.cat((rows["language"], rows["attention"]), 1)
        attention, attention_cell = self.lstm(inputs, past, rows["attention_cell"])
        node = self.attention(attention, *(images[f"sentence_{name}"] for name in ("keys", "nodes", "barrier")))
        language, language_cell = self.language_lstm.read(
            torch.cat((node, attention), 1), (rows["language"],), rows["language_cell"]
        )
        return language, {
            "language": language,
            "attention": attention,
            "language_cell": language_cell,
            "attention_cell": attention_cell,
        }
