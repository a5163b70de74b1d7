"""Up-Down: a top-down attention LSTM below a language LSTM, on region features.

P. Anderson, X. He, C. Buehler, D. Teney, M. Johnson, S. Gould, L. Zhang: "Bottom-Up and Top-Down Attention for Image
Captioning and Visual Question Answering", CVPR 2018, section 3.2.
Numerically equal to `updown` of https://github.com/ruotianluo/ImageCaptioning.pytorch (MIT), which embeds the regions
in R dimensions, where the paper attends to them directly. The global image feature is the mean of its regions.
"""

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.captioner import Memory, Visual, VisualSpec
from zoo.converter import Converter, Tensors, convert_attention_lstm, convert_lstm, lstm_names
from zoo.errors import check_choice
from zoo.fast.updown import UpDownScan
from zoo.layers.additive_attention import AdditiveAttention
from zoo.layers.lstm import LSTMCell
from zoo.layers.pooling import mean_of_valid
from zoo.recurrent import RecurrentCaptioner, Rows
from zoo.shared_official_names.luo_lstm import ATTENTION, ATTENTION_SIZES, HINT, WORDS


class UpDown(RecurrentCaptioner):
    """Attention LSTM [h_language; image; word], attention by its state, language LSTM [attended; h_attention].

    Args:
        d_model: R, of both LSTMs, the embedded regions and the embedded image.
        dropout: of embedded words, regions and image, and before the logits.
    """

    per_row = ("image", "attention_bias")

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
        visual_kind: Literal["grid", "regions"] = "regions",
    ) -> None:
        check_choice("visual_kind", visual_kind, ("grid", "regions"))
        super().__init__(VisualSpec(visual_kind, visual_dim), vocab_size, max_len, d_model)
        d_embedding = d_embedding or d_model
        self.embedding = nn.Sequential(nn.Embedding(vocab_size, d_embedding), nn.ReLU(), nn.Dropout(dropout))
        self.region_embedding = nn.Sequential(nn.Linear(visual_dim, d_model), nn.ReLU(), nn.Dropout(dropout))
        self.image_embedding = nn.Sequential(nn.Linear(visual_dim, d_model), nn.ReLU(), nn.Dropout(dropout))
        self.lstm = LSTMCell(d_embedding, d_model, 2 * d_model)
        self.image_gates = nn.Linear(d_model, 4 * d_model, bias=False)
        self.matrices_in = {"image_gates": 4}
        nn.init.uniform_(self.image_gates.weight, -(d_model**-0.5), d_model**-0.5)
        self.attention = AdditiveAttention(d_model, d_model, d_attention)
        self.language_lstm = LSTMCell(d_model, d_model, 2 * d_model)
        self.output_dropout = nn.Dropout(dropout)
        self.vocabulary = nn.Linear(d_model, vocab_size)

    def encode(self, visual: Visual) -> Memory:
        features, mask = self.valid_features(visual)
        regions = self.region_embedding(features)
        keys, attention_bias = self.attention.project(regions, mask)
        image = self.image_embedding(mean_of_valid(features, mask))
        image = F.linear(image, self.image_gates.weight, self.lstm.both_biases())
        return Memory(
            regions, mask, {"keys": keys, "values": regions, "attention_bias": attention_bias, "image": image}
        )

    def first_rows(self, memory: Memory) -> Rows:
        """[language state; attention state], and their cells."""
        return {"state": memory.features.new_zeros(memory.batch_size, 4 * self.d_model)}

    def shared_tensors(self) -> dict[str, Tensor]:
        """See `RecurrentCaptioner.shared_tensors`; the language LSTM's matrix for [regions; attention; language]."""
        lstm = self.language_lstm
        weight = torch.cat((lstm.input.weight, lstm.recurrent.weight), 1)
        return {"language_weight": weight, "language_bias": lstm.input.bias + lstm.recurrent.bias}

    def advance(self, inputs: Tensor, rows: Rows, images: dict[str, Tensor]) -> tuple[Tensor, Rows]:
        width = self.d_model
        state = rows["state"]
        past, language_cell, attention_cell = torch.split(state, [2 * width, width, width], 1)
        attention, attention_cell = self.lstm(inputs, past, attention_cell)
        attended = self.attention(attention, images["keys"], images["values"], images["attention_bias"])
        read = torch.cat((attended, attention, past[:, :width]), 1)
        gates, candidates = torch.split(
            F.linear(read, images["language_weight"], images["language_bias"]), [3 * width, width], 1
        )
        language, language_cell = self.language_lstm.update(gates, candidates, language_cell)
        return language, {"state": torch.cat((language, attention, language_cell, attention_cell), 1)}

    def scan(self, inputs: Tensor, images: dict[str, Tensor]) -> Tensor:
        width = self.d_model
        language = self.language_lstm
        of_language, of_attention = self.lstm.recurrent.weight.split_with_sizes([width, width], 1)
        past_attention, past_language = language.recurrent.weight.split_with_sizes([width, width], 1)
        states: Tensor = UpDownScan.apply(
            *(inputs, images["keys"], images["attention_bias"], images["values"]),
            torch.cat((of_attention, of_language), 1),
            self.attention.query.weight,
            self.attention.score.weight,
            torch.cat((past_language, language.input.weight, past_attention), 1),
            language.input.bias + language.recurrent.bias,
        )
        return states


class _UpDownConverter(Converter):
    def tensors(self, official: Mapping[str, Tensor]) -> Tensors:
        d_word = official["embed.0.weight"].shape[1]
        d_state = official["core.lang_lstm.weight_hh"].shape[1]
        attention = convert_attention_lstm(official, "core.att_lstm", "", d_word)
        language = convert_lstm(official, "core.lang_lstm", "language_lstm", d_state)
        return super().tensors(official) | attention | language


CONVERTER = _UpDownConverter(
    source="ImageCaptioning.pytorch's Up-Down",
    renames=(*WORDS, *ATTENTION, (r"^fc_embed\.", "image_embedding.")),
    unused=r"^core\.(att|lang)_lstm\.",
    size_axes=ATTENTION_SIZES,
    required=lstm_names("core.att_lstm", "core.lang_lstm"),
    hint=HINT,
)
"""Weights of `updown`: see `zoo.shared_official_names.luo_lstm`."""
