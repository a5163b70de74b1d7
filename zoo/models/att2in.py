"""Att2in and Att2all: an LSTM with maxout candidates, whose previous state attends to the image.

S. J. Rennie, E. Marcheret, Y. Mroueh, J. Ross, V. Goel: "Self-critical Sequence Training for Image Captioning",
CVPR 2017, section 2.
Numerically equal to `att2in`, `att2in2` and `att2all2` of https://github.com/ruotianluo/ImageCaptioning.pytorch (MIT),
which states that the last is not exactly Att2all.
"""

from collections.abc import Mapping
from typing import Any, Literal

from torch import Tensor, nn

from zoo.captioner import Memory, Visual, VisualSpec
from zoo.converter import Converter
from zoo.errors import check_choice
from zoo.layers.additive_attention import AdditiveAttention
from zoo.layers.lstm import LSTMCell
from zoo.recurrent import RecurrentCaptioner, Rows, init_words_and_vocabulary
from zoo.shared_official_names.luo_lstm import ATTENTION, ATTENTION_SIZES, HINT, WORDS


class Att2in(RecurrentCaptioner):
    """One LSTM; the attended vector is an input of its candidates only, or of its gates too.

    Args:
        d_model: R, of the LSTM, and of the regions where they are embedded.
        dropout: before the logits; of embedded words and regions where these are rectified.
        attended: "candidates" is Att2in, "all" is Att2all.
        rectified: embed words and regions through a ReLU (`att2in2`, `att2all2`), instead of words linearly and
            regions not at all (`att2in`).
    """

    per_row = ("attention_bias",)

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
        attended: Literal["candidates", "all"] = "candidates",
        rectified: bool = False,
        visual_kind: Literal["grid", "regions"] = "grid",
    ) -> None:
        check_choice("visual_kind", visual_kind, ("grid", "regions"))
        super().__init__(VisualSpec(visual_kind, visual_dim), vocab_size, max_len, d_model)
        check_choice("attended", attended, ("candidates", "all"))
        words = nn.Embedding(vocab_size, d_embedding or d_model)
        self.vocabulary = nn.Linear(d_model, vocab_size)
        self.output_dropout = nn.Dropout(dropout)
        if rectified:
            self.embedding = nn.Sequential(words, nn.ReLU(), nn.Dropout(dropout))
            self.region_embedding = nn.Sequential(nn.Linear(visual_dim, d_model), nn.ReLU(), nn.Dropout(dropout))
        else:
            self.embedding = words
            self.region_embedding = nn.Sequential()
            init_words_and_vocabulary(words, self.vocabulary)
        d_regions = d_model if rectified else visual_dim
        self.everywhere = attended == "all"
        self.attention = AdditiveAttention(d_model, d_regions, d_attention)
        self.attended = nn.Linear(d_regions, (5 if self.everywhere else 2) * d_model)
        self.lstm = LSTMCell(words.embedding_dim, d_model, d_model, maxout=True)

    def encode(self, visual: Visual) -> Memory:
        features, mask = self.valid_features(visual)
        regions = self.region_embedding(features)
        keys, attention_bias = self.attention.project(regions, mask)
        return Memory(regions, mask, {"keys": keys, "values": regions, "attention_bias": attention_bias})

    def advance(self, inputs: Tensor, rows: Rows, images: dict[str, Tensor]) -> tuple[Tensor, Rows]:
        attended = self.attention(rows["hidden"], images["keys"], images["values"], images["attention_bias"])
        attended = self.attended(attended)
        if self.everywhere:
            hidden, cell = self.lstm(inputs + attended, rows["hidden"], rows["cell"])
        else:
            preactivations = self.lstm.preactivate(inputs, rows["hidden"])
            n_gates = 3 * self.d_model
            candidates = preactivations[:, n_gates:] + attended
            hidden, cell = self.lstm.update(preactivations[:, :n_gates], candidates, rows["cell"])
        return hidden, {"hidden": hidden, "cell": cell}


class _Att2inConverter(Converter):
    def sizes(self, official: Mapping[str, Tensor]) -> dict[str, Any]:
        if "att_embed.0.weight" in official:
            return super().sizes(official)
        without_embedding = {"d_embedding": ("embed.weight", 1), "visual_dim": ("ctx2att.weight", 1)}
        return self.read_sizes(official, {**self.size_axes, **without_embedding})


CONVERTER = _Att2inConverter(
    source="ImageCaptioning.pytorch's Att2in or Att2all",
    renames=(
        *WORDS,
        *ATTENTION,
        (r"^core\.a2[ch]\.", "attended."),
        (r"^core\.i2h\.", "lstm.input."),
        (r"^core\.h2h\.", "lstm.recurrent."),
    ),
    size_axes=ATTENTION_SIZES,
    hint=HINT,
)
"""Weights of `att2in`, `att2in2` and `att2all2`: see `zoo.shared_official_names.luo_lstm`."""
