"""Adaptive attention: each word attends to the regions of the image, and to a visual sentinel from the LSTM.

J. Lu, C. Xiong, D. Parikh, R. Socher: "Knowing When to Look: Adaptive Attention via A Visual Sentinel for Image
Captioning", CVPR 2017, section 2.
Numerically equal to `adaatt` of https://github.com/ruotianluo/ImageCaptioning.pytorch (MIT), with one LSTM layer; the
authors' own code is in Torch 7. The global image feature is the mean of its regions.
"""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.captioner import Memory, Visual, VisualSpec
from zoo.converter import Converter
from zoo.errors import check_choice
from zoo.layers.lstm import LSTMCell
from zoo.layers.pooling import mean_of_valid
from zoo.recurrent import RecurrentCaptioner, Rows, project_words
from zoo.shared_official_names.luo_lstm import ATTENTION, ATTENTION_SIZES, HINT, WORDS


class SentinelAttention(nn.Module):
    """Additive attention to the regions a_1 .. a_L of an image and to the sentinel s of a word.

    With f = relu(W_s s), q = tanh(W_h h) and the keys W_a a_i and W_f f,
    weights = softmax(w . tanh(key + W_q q)) over all L + 1, and the output is q + sum_i weights_i a_i + weights_s f.
    The sentinel's weight is the paper's beta.

    Args:
        d_model: of states, sentinel and regions.
        dropout: of f, q and the tanh layer.
    """

    def __init__(self, d_model: int, d_attention: int, dropout: float) -> None:
        super().__init__()
        self.key = nn.Linear(d_model, d_attention)
        self.sentinel = nn.Linear(d_model, d_model)
        self.sentinel_key = nn.Linear(d_model, d_attention)
        self.state = nn.Linear(d_model, d_model)
        self.query = nn.Linear(d_model, d_attention)
        self.score = nn.Linear(d_attention, 1)
        self.dropout = nn.Dropout(dropout)

    def project(self, regions: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """The keys (B, L, A) of an image's regions (B, L, D), and an attention bias (B, 1, L + 1) for the scores.

        `mask` (B, L) is true at valid regions. The sentinel comes last and is always visible.
        """
        attention_bias = torch.zeros_like(mask, dtype=regions.dtype).masked_fill_(~mask, -torch.inf)
        return self.key(regions), F.pad(attention_bias, (0, 1))[:, None]

    def forward(self, state: Tensor, sentinel: Tensor, keys: Tensor, values: Tensor, attention_bias: Tensor) -> Tensor:
        """The output for each state, (B * n, D).

        Args:
            state, sentinel: (B * n, D); the n rows of an image are adjacent and share its keys.
            keys, attention_bias: from `project`.
            values: (B, L, D), the regions.
        """
        images = keys.shape[0]
        width = keys.shape[2]
        f = self.dropout(self.sentinel(sentinel).relu())
        q = self.dropout(self.state(state).tanh())
        query = self.query(q)
        of_sentinel = (self.sentinel_key(f) + query).view(images, -1, 1, width)
        hidden = torch.cat((keys[:, None] + query.view(images, -1, 1, width), of_sentinel), 2)
        scores = self.dropout(hidden.tanh()) @ self.score.weight.view(-1) + self.score.bias
        weights = (scores + attention_bias).softmax(-1)
        attended = torch.bmm(weights[..., :-1], values)
        output: Tensor = attended.flatten(0, 1) + weights[..., -1:].flatten(0, 1) * f + q
        return output


class AdaptiveAttention(RecurrentCaptioner):
    """An LSTM over [word; image] with a sentinel s_t = sigmoid(W_x x + W_v v + W_h h_{t-1}) tanh(c_t).

    p(w_t) = softmax(W tanh(W_o a_t)), where a_t is the output of `SentinelAttention`.

    Args:
        d_model: R, of the LSTM, the embedded regions and the embedded image.
        dropout: of embedded words, regions and image, of state and sentinel before and within the attention, and before
            the logits.
    """

    per_row = ("image",)

    def __init__(
        self,
        *,
        vocab_size: int,
        visual_dim: int,
        d_model: int = 512,
        dropout: float = 0.5,
        max_len: int = 20,
        d_embedding: int | None = None,
        d_attention: int = 512,
        visual_kind: Literal["grid", "regions"] = "grid",
    ) -> None:
        check_choice("visual_kind", visual_kind, ("grid", "regions"))
        super().__init__(VisualSpec(visual_kind, visual_dim), vocab_size, max_len, d_model)
        d_embedding = d_embedding or d_model
        self.embedding = nn.Sequential(nn.Embedding(vocab_size, d_embedding), nn.ReLU(), nn.Dropout(dropout))
        self.region_embedding = nn.Sequential(nn.Linear(visual_dim, d_model), nn.ReLU(), nn.Dropout(dropout))
        self.image_embedding = nn.Sequential(nn.Linear(visual_dim, d_model), nn.ReLU(), nn.Dropout(dropout))
        self.lstm = LSTMCell(d_embedding, d_model, d_model)
        self.image_gates = nn.Linear(d_model, 4 * d_model)
        self.matrices_in = {"image_gates": 4}
        self.sentinel_input = nn.Linear(d_embedding, d_model)
        self.sentinel_image = nn.Linear(d_model, d_model)
        self.sentinel_past = nn.Linear(d_model, d_model)
        self.state_dropout = nn.Dropout(dropout)
        self.attention = SentinelAttention(d_model, d_attention, dropout)
        self.output = nn.Linear(d_model, d_model)
        self.output_dropout = nn.Dropout(dropout)
        self.vocabulary = nn.Linear(d_model, vocab_size)

    def encode(self, visual: Visual) -> Memory:
        features, mask = self.valid_features(visual)
        regions = self.region_embedding(features)
        keys, attention_bias = self.attention.project(regions, mask)
        image = self.image_embedding(mean_of_valid(features, mask))
        lstm = self.image_gates(image) + self.lstm.input.bias + self.lstm.recurrent.bias
        image = torch.cat((lstm, self.sentinel_image(image) + self.sentinel_input.bias), 1)
        return Memory(
            regions, mask, {"keys": keys, "values": regions, "attention_bias": attention_bias, "image": image}
        )

    def word_inputs(self, words: Tensor, images: dict[str, Tensor]) -> Tensor:
        """See `RecurrentCaptioner.word_inputs`; for the LSTM, then for the gate of the sentinel."""
        weight = torch.cat((self.lstm.input.weight, self.sentinel_input.weight))
        return project_words(words, weight, images["image"])

    def advance(self, inputs: Tensor, rows: Rows, images: dict[str, Tensor]) -> tuple[Tensor, Rows]:
        gates, gate = torch.split(inputs, [4 * self.d_model, self.d_model], 1)
        hidden, cell = self.lstm(gates, rows["hidden"], rows["cell"])
        sentinel = (gate + self.sentinel_past(rows["hidden"])).sigmoid() * cell.tanh()
        attended = self.attention(
            self.state_dropout(hidden),
            self.state_dropout(sentinel),
            images["keys"],
            images["values"],
            images["attention_bias"],
        )
        return attended, {"hidden": hidden, "cell": cell}

    def predict(self, outputs: Tensor, words: Tensor) -> Tensor:
        return super().predict(self.output(outputs).tanh(), words)


CONVERTER = Converter(
    source="ImageCaptioning.pytorch's adaptive attention",
    renames=(
        *WORDS,
        *ATTENTION,
        (r"^fc_embed\.", "image_embedding."),
        (r"^core\.attention\.ho_embed\.", "attention.query."),
        (r"^core\.attention\.fr_linear\.0\.", "attention.sentinel."),
        (r"^core\.attention\.fr_embed\.", "attention.sentinel_key."),
        (r"^core\.attention\.ho_linear\.0\.", "attention.state."),
        (r"^core\.attention\.att2h\.", "output."),
        (r"^core\.lstm\.w2h\.", "lstm.input."),
        (r"^core\.lstm\.h2h\.0\.", "lstm.recurrent."),
        (r"^core\.lstm\.v2h\.", "image_gates."),
        (r"^core\.lstm\.r_w2h\.", "sentinel_input."),
        (r"^core\.lstm\.r_v2h\.", "sentinel_image."),
        (r"^core\.lstm\.r_h2h\.", "sentinel_past."),
    ),
    size_axes=ATTENTION_SIZES,
    hint=HINT,
)
"""Weights of `adaatt`: see `zoo.shared_official_names.luo_lstm`."""
