"""X-LAN: X-linear attention in an encoder of regions and in an LSTM decoder.

Y. Pan, T. Yao, Y. Li, T. Mei: "X-Linear Attention Networks for Image Captioning", CVPR 2020 (arXiv:2003.14080), section
3.2. Code: https://github.com/JDAI-CV/image-captioning (no licence stated), which this follows numerically.
"""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.captioner import Memory, Visual, VisualSpec
from zoo.converter import Tensors, convert_lstm, lstm_names
from zoo.errors import check_at_least_1
from zoo.layers.lstm import LSTMCell
from zoo.layers.x_linear import ALPHA, XLinearAttention, XLinearDropouts, XLinearEncoder, visibility
from zoo.recurrent import RecurrentCaptioner, Rows
from zoo.shared_official_names.x_linear import ATTENTION, XLinearConverter, x_linear_sizes


class XLAN(RecurrentCaptioner):
    """h = LSTM([word; g + context], h); a = norm(W [h; attention(h)]); context = GLU(W [a; h]); p = softmax(W context).

    Args:
        d_model: of word vectors too.
        n_attention_layers: attentions of a word; the output of each is the query of the next.
        d_attention: width of the bilinear products of a head; half of the head's if not given.
        dropout: on embedded words and regions, after each attention, on the context that is fed back, and before the
            vocabulary. The authors do not apply the last one when they decode word by word in training mode.
        attention_dropout: on the bilinear products.
        fusion_dropout: where regions are fused with the global vector.
    """

    per_row = ("image",)
    states = ("hidden", "cell", "context")

    def __init__(
        self,
        *,
        vocab_size: int,
        visual_dim: int,
        d_model: int = 1024,
        n_heads: int = 8,
        n_encoder_layers: int = 4,
        n_attention_layers: int = 1,
        d_attention: int | None = None,
        dropout: float = 0.5,
        attention_dropout: float = 0.1,
        fusion_dropout: float = 0.3,
        max_len: int = 74,
    ) -> None:
        super().__init__(VisualSpec("regions", visual_dim), vocab_size, max_len, d_model)
        check_at_least_1(n_attention_layers=n_attention_layers)
        self.region_embedding = nn.Sequential(nn.Linear(visual_dim, d_model), nn.CELU(ALPHA), nn.Dropout(dropout))
        dropouts = XLinearDropouts(dropout, attention_dropout, fusion_dropout)
        self.encoder = XLinearEncoder(d_model, n_heads, n_encoder_layers, dropouts, d_attention=d_attention)
        self.embedding = nn.Sequential(nn.Embedding(vocab_size, d_model), nn.CELU(ALPHA), nn.Dropout(dropout))
        self.lstm = LSTMCell(d_model, d_model, 2 * d_model)
        self.attentions = nn.ModuleList(
            XLinearAttention(d_model, n_heads, d_attention, attention_dropout) for _ in range(n_attention_layers)
        )
        self.attended = nn.Linear((n_attention_layers + 1) * d_model, d_model)
        self.attended_norm = nn.LayerNorm(d_model)
        self.context = nn.Linear(2 * d_model, 2 * d_model)
        self.matrices_in = {"context": 2}
        self.dropout = nn.Dropout(dropout)
        self.output_dropout = nn.Dropout(dropout)
        self.vocabulary = nn.Linear(d_model, vocab_size)

    def encode(self, visual: Visual) -> Memory:
        """See `Captioner.encode`; `extra` has the keys and values (B, H, L, d_k) of the decoder's attentions."""
        features, mask = self.valid_features(visual)
        attention_bias, share = visibility(mask, features.dtype)
        regions, vector = self.encoder(self.region_embedding(features), mask, (attention_bias, share))
        # The global vector is an input of the LSTM at every word.
        bias = self.lstm.input.bias + self.lstm.recurrent.bias
        image = F.linear(vector, self.lstm.recurrent.weight[:, : self.d_model], bias)
        extra = {"image": image, "attention_bias": attention_bias, "share": share}
        for index, attention in enumerate(self._attentions()):
            extra[f"{index}.keys"], extra[f"{index}.values"] = attention.project(regions)
        return Memory(regions, mask, extra)

    def cross_attention_modules(self) -> Sequence[nn.Module]:
        return tuple(self.attentions)

    def advance(self, inputs: Tensor, rows: Rows, images: dict[str, Tensor]) -> tuple[Tensor, Rows]:
        """See `RecurrentCaptioner.advance`; the rows of an image are adjacent and share its keys and values."""
        past = torch.cat((self.dropout(rows["context"]), rows["hidden"]), 1)
        hidden, cell = self.lstm(inputs, past, rows["cell"])
        visible = (images["attention_bias"], images["share"])
        vectors = [hidden]
        for index, attention in enumerate(self._attentions()):
            keys = images[f"{index}.keys"]
            values = images[f"{index}.values"]
            vectors.append(self.dropout(attention(vectors[-1][:, None], keys, values, visible).squeeze(1)))
        attended = self.attended_norm(self.attended(torch.cat(vectors, 1)))
        context = F.glu(self.context(torch.cat((attended, hidden), 1)), 1)
        return context, {"hidden": hidden, "cell": cell, "context": context}

    def _attentions(self) -> Iterable[XLinearAttention]:
        return self.attentions  # type: ignore[return-value]  # ModuleList is not generic


_LSTM = "att_lstm"


class _XLANConverter(XLinearConverter):
    def tensors(self, official: Mapping[str, Tensor]) -> Tensors:
        width = official[f"{_LSTM}.weight_hh"].shape[1]
        return super().tensors(official) | convert_lstm(official, _LSTM, "lstm", width)


CONVERTER = _XLANConverter(
    source="X-LAN",
    renames=(
        *ATTENTION,
        (r"^word_embed\b", "embedding"),
        (r"^att_embed\b", "region_embedding"),
        (r"^encoder_layers\.layers\.(\d+)\.encoder_attn\b", r"encoder.layers.\1.attention"),
        (r"^encoder_layers\.bifeat_emb\.(\d+)\.0\b", r"encoder.layers.\1.fusion.linear"),
        (r"^encoder_layers\.layer_norms\.(\d+)\b", r"encoder.layers.\1.fusion.norm"),
        (r"^encoder_layers\.proj\b", "encoder.output"),
        (r"^encoder_layers\.layer_norm\b", "encoder.norm"),
        (r"^attention\.layers\.(\d+)\.encoder_attn\b", r"attentions.\1"),
        (r"^attention\.proj\b", "attended"),
        (r"^attention\.layer_norm\b", "attended_norm"),
        (r"^att2ctx\.0\b", "context"),
        (r"^logit\b", "vocabulary"),
    ),
    unused=r"^att_lstm\.",
    size_axes=x_linear_sizes("encoder_layers", "logit"),
    stacks={"n_encoder_layers": "encoder_layers.layers", "n_attention_layers": "attention.layers"},
    required=lstm_names(_LSTM),
    shared_number=("word_embed.0.weight", "logit"),
)
"""Weights of the authors' code. Shapes determine everything but `max_len`: see `zoo.shared_official_names.x_linear`."""
