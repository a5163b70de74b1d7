"""Show, Attend and Tell with soft attention over the grid of an image.

K. Xu, J. L. Ba, R. Kiros, K. Cho, A. Courville, R. Salakhutdinov, R. S. Zemel, Y. Bengio: "Show, Attend and Tell:
Neural Image Caption Generation with Visual Attention", ICML 2015, sections 3.1 and 4.2.
Code: https://github.com/kelvinxu/arctic-captions (BSD-3-Clause), the source of the sizes for COCO. Where it differs,
this follows the paper: no tanh before the logits (equation 7), and no second layer in the projection of the grid. The
doubly stochastic regularisation (equation 14) belongs to a training objective and is not here.
"""

import torch
from torch import Tensor, nn

from zoo.captioner import Memory, Visual, VisualSpec
from zoo.layers.additive_attention import AdditiveAttention
from zoo.layers.lstm import LSTMCell
from zoo.layers.pooling import mean_of_valid
from zoo.recurrent import RecurrentCaptioner, Rows


class ShowAttendTell(RecurrentCaptioner):
    """LSTM over [word; beta * attended]; logits L_o(E y + L_h h + L_z z) (equation 7).

    Args:
        d_model: n, of the LSTM.
        d_embedding: m, of words and of the deep output; n by default.
        dropout: of the state, of the deep output, and inside the networks of the first state.
    """

    per_row = ("attention_bias",)

    def __init__(
        self,
        *,
        vocab_size: int,
        visual_dim: int,
        d_model: int = 1800,
        dropout: float = 0.5,
        max_len: int = 20,
        d_embedding: int | None = None,
        d_attention: int = 512,
    ) -> None:
        super().__init__(VisualSpec("grid", visual_dim), vocab_size, max_len, d_model)
        d_embedding = d_embedding or d_model
        self.embedding = nn.Embedding(vocab_size, d_embedding)
        self.first_hidden = _first_state(visual_dim, d_model, dropout)
        self.first_cell = _first_state(visual_dim, d_model, dropout)
        self.attention = AdditiveAttention(d_model, visual_dim, d_attention)
        self.gate = nn.Linear(d_model, 1)
        self.lstm = LSTMCell(d_embedding, d_model, d_model + visual_dim)
        self.attended_output = nn.Linear(visual_dim, d_embedding, bias=False)
        self.hidden_output = nn.Linear(d_model, d_embedding)
        self.hidden_dropout = nn.Dropout(dropout)
        self.output_dropout = nn.Dropout(dropout)
        self.vocabulary = nn.Linear(d_embedding, vocab_size)

    def encode(self, visual: Visual) -> Memory:
        features, mask = self.valid_features(visual)
        keys, attention_bias = self.attention.project(features, mask)
        return Memory(features, mask, {"keys": keys, "values": features, "attention_bias": attention_bias})

    def first_rows(self, memory: Memory) -> Rows:
        """The initial state: two small networks applied to the mean of the grid."""
        mean = mean_of_valid(memory.features, memory.mask)
        return {"hidden": self.first_hidden(mean), "cell": self.first_cell(mean)}

    def advance(self, inputs: Tensor, rows: Rows, images: dict[str, Tensor]) -> tuple[Tensor, Rows]:
        """See `RecurrentCaptioner.advance`; the output is [h ; z]."""
        attended = self.attention(rows["hidden"], images["keys"], images["values"], images["attention_bias"])
        attended = self.gate(rows["hidden"]).sigmoid() * attended
        past = torch.cat((rows["hidden"], attended), 1)
        hidden, cell = self.lstm(inputs, past, rows["cell"])
        return torch.cat((hidden, attended), 1), {"hidden": hidden, "cell": cell}

    def predict(self, outputs: Tensor, words: Tensor) -> Tensor:
        hidden = outputs[..., : self.d_model]
        attended = outputs[..., self.d_model :]
        deep = words + self.hidden_output(self.hidden_dropout(hidden)) + self.attended_output(attended)
        return super().predict(deep, words)


def _first_state(visual_dim: int, d_model: int, dropout: float) -> nn.Sequential:
    """f_init of the paper, with one hidden layer, as in the authors' settings for COCO."""
    hidden = nn.Linear(visual_dim, visual_dim)
    return nn.Sequential(hidden, nn.ReLU(), nn.Dropout(dropout), nn.Linear(visual_dim, d_model), nn.Tanh())
