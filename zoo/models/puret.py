"""PureT: a transformer around a global feature, with windows in the encoder and a fusion before every decoder layer.

Y. Wang, J. Xu, Y. Sun: "End-to-End Transformer Based Model for Image Captioning", AAAI 2022 (arXiv:2203.15350).
Code: https://github.com/232525/PureT (no licence stated), which this follows numerically. There padding words are
hidden from attention; here they are at the end, where the causal mask hides them.

Windows are those of Z. Liu et al.: "Swin Transformer: Hierarchical Vision Transformer using Shifted Windows", ICCV
2021, section 3.2, with one global token in all of them. Tokens need not fill the grid: a region is in the cell of its
box's centre, and a cell may have several regions or none. The authors cut the grid into windows; here the scores of all
pairs are computed and pairs from different windows masked. This gives the same numbers, works for any positions, and
costs 3 % more at the released size.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from zoo.captioner import DecodingState, Memory, Visual, VisualSpec
from zoo.converter import Converter, Tensors
from zoo.errors import ZooError, check_choice
from zoo.layers.attention import MultiHeadAttention, SelfAttention
from zoo.layers.pooling import mean_of_valid
from zoo.layers.residual import DecoderLayer, EncoderLayer, FeedForward
from zoo.layers.x_linear import ALPHA, Fusion
from zoo.stacked import StackedCaptioner


def square_cells(count: int, device: torch.device) -> Tensor:
    """Row and column (1, L, 2) of the cells of a square grid, row by row; ZooError if `count` is not a square."""
    side = math.isqrt(count)
    if side * side != count:
        raise ZooError(
            f"windows need a square grid or boxes, but the input has {count} tokens without boxes",
            "use a backbone with as many rows as columns, or regions with boxes",
        )
    index = torch.arange(count, device=device)
    return torch.stack((index // side, index % side), -1)[None]


def box_cells(boxes: Tensor, grid: int) -> Tensor:
    """Row and column (B, L, 2) of the cells of a square grid that contain the centres of boxes (B, L, 4) in [0, 1]."""
    left, top, right, bottom = boxes.unbind(-1)
    centres = torch.stack((top + bottom, left + right), -1) / 2
    return (centres * grid).long().clamp(0, grid - 1)


def neighbours(cells: Tensor, grid: int, window: int, shift: int) -> tuple[Tensor, Tensor]:
    """Whether each pair of tokens (B or 1, L, L) shares a window, and the row of the bias table for its offset.

    The grid is rolled by `shift` up and to the left before it is cut into windows. Rows that the roll moved to the end
    do not share a window with the rows before them; the same applies to columns. There is no shift if one window covers
    the whole grid.
    """
    shift = shift if window < grid else 0
    rolled = (cells - shift) % grid
    groups = torch.cat((rolled // window, rolled >= grid - shift), -1)
    visible = (groups[:, :, None] == groups[:, None]).all(-1)
    in_window = rolled % window
    rows, columns = (in_window[:, :, None] - in_window[:, None] + window - 1).unbind(-1)
    return visible, rows * (2 * window - 1) + columns


class WindowAttention(MultiHeadAttention):
    """Self-attention of tokens to their window and the global token, which comes last and attends to all tokens.

    Scores between tokens have a learned bias for their relative position in the window.
    """

    def __init__(self, d_model: int, n_heads: int, window: int) -> None:
        super().__init__(d_model, n_heads)
        self.bias_table = nn.Parameter(torch.empty((2 * window - 1) ** 2, n_heads))
        nn.init.trunc_normal_(self.bias_table, std=0.02)

    def forward(  # type: ignore[override]
        self, x: Tensor, mask: Tensor, pairs: tuple[Tensor, Tensor], global_weight: float
    ) -> Tensor:
        """Attend: (B, L + 1, D) to the same.

        Args:
            mask: (B, L), true at valid tokens.
            pairs: from `neighbours`.
            global_weight: factor of the global token's weight on itself, after its softmax.
        """
        queries, keys, values = self.project_all(x)
        visible, offset = pairs
        bias = self.bias_table[offset].permute(0, 3, 1, 2).masked_fill(~visible[:, None], -torch.inf)
        scores = queries * queries.shape[-1] ** -0.5 @ keys.transpose(-1, -2)
        hidden = nn.functional.pad(~mask, (0, 1), value=False)[:, None, None]
        weights = (scores + nn.functional.pad(bias, (0, 1, 0, 1))).masked_fill(hidden, -torch.inf).softmax(-1)
        attended = weights.to(values.dtype) @ values
        if global_weight != 1:
            extra = (global_weight - 1) * weights[:, :, -1:, -1:].to(values.dtype) * values[:, :, -1:]
            attended = torch.cat((attended[:, :, :-1], attended[:, :, -1:] + extra), 2)
        return self._output(attended, x)


class _DroppedFeedForward(FeedForward):
    """A feed-forward with dropout on its output, besides that of the residual branch, as in the authors' code."""

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) to (..., D)."""
        dropped: Tensor = self.dropout(super().forward(x))
        return dropped


class PureTDecoderLayer(DecoderLayer):
    """Fusion with the global feature, then self-attention, cross-attention and feed-forward."""

    def __init__(self, d_model: int, d_ff: int, n_heads: int, dropout: float) -> None:
        mixer = SelfAttention(d_model, n_heads, causal=True)
        super().__init__(mixer, MultiHeadAttention(d_model, n_heads), d_model, d_ff, dropout, post_norm=True)
        self.feed_forward = _DroppedFeedForward(d_model, d_ff, dropout)
        self.fusion = Fusion(d_model, dropout)


class PureT(StackedCaptioner):
    """An encoder over tokens and their mean, in windows that shift in every second layer, and a post-norm decoder.

    Args:
        dropout: on embedded tokens, in every feed-forward, on every branch and before the vocabulary.
        grid: rows and columns of the grid in which boxes are placed by their centres; 12 is the authors'.
        window: rows and columns of a window.
        shift: of the windows of layers 1, 3, ...; half a window if not given.
        global_once: count the global token's attention to itself once. In the authors' code, and by default, it counts
            once per window: their softmax is over all windows at once, but every window adds the token's own part.
        visual_kind: "regions" with boxes, which the cells of a backbone's grid have too, or a square "grid" without.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        visual_dim: int,
        d_model: int = 512,
        d_ff: int = 2048,
        n_heads: int = 8,
        n_encoder_layers: int = 3,
        n_decoder_layers: int = 3,
        dropout: float = 0.1,
        max_len: int = 74,
        grid: int = 12,
        window: int = 6,
        shift: int | None = None,
        global_once: bool = False,
        visual_kind: Literal["grid", "regions"] = "regions",
    ) -> None:
        check_choice("visual_kind", visual_kind, ("grid", "regions"))
        super().__init__(VisualSpec(visual_kind, visual_dim), vocab_size, max_len)
        shift = window // 2 if shift is None else shift
        if not (1 <= window <= 100 and 1 <= grid <= 1000 and 0 <= shift < window):
            raise ZooError(
                f"grid {grid}, window {window} and shift {shift} make no windows",
                "choose a grid from 1 to 1000, a window from 1 to 100, and a shift from 0 to below the window",
            )
        self.grid = grid
        self.window = window
        self.shift = shift
        self.global_once = global_once
        self.input = nn.Sequential(nn.Linear(visual_dim, d_model), nn.CELU(ALPHA, inplace=True), nn.Dropout(dropout))
        self.encoder_layers = nn.ModuleList()
        for _ in range(n_encoder_layers):
            mixer = WindowAttention(d_model, n_heads, window)
            layer = EncoderLayer(mixer, d_model, d_ff, dropout, post_norm=True)
            layer.feed_forward = _DroppedFeedForward(d_model, d_ff, dropout)
            self.encoder_layers.append(layer)
        layers = (PureTDecoderLayer(d_model, d_ff, n_heads, dropout) for _ in range(n_decoder_layers))
        self.build_decoder(d_model, dropout, layers, scale=None, bias=True)

    def encode(self, visual: Visual) -> Memory:
        """See `Captioner.encode`; `extra` has the global feature (B, D)."""
        features, mask = visual.valid_features(self.vocabulary.weight.dtype)
        x = self.input(features)
        mean = mean_of_valid(x.masked_fill(~mask[..., None], 0.0), mask)
        x = torch.cat((x, mean[:, None]), 1)
        cells, grid = self._cells(visual, features)
        pairs = [neighbours(cells, grid, self.window, shift) for shift in (0, self.shift)]
        global_weight = 1 if self.global_once else math.ceil(grid / self.window) ** 2
        for index, layer in enumerate(self.encoder_layers):
            x = layer(x, mask, pairs[index % 2], global_weight)
        return Memory(x[:, :-1], mask, {"global": x[:, -1]})

    def decode(self, memory: Memory, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        memory = _with_global(memory)
        attention_bias, projected = self._project_memory(memory)
        for layer, (keys, values) in zip(self._decoder_layers(), projected, strict=True):
            fused = layer.fusion(x, layer.fusion.project(memory.features[:, -1:]))
            x = layer(fused, keys, values, attention_bias)
        return self.predict([x])

    def start(self, memory: Memory) -> DecodingState:
        memory = _with_global(memory)
        state = super().start(memory)
        for index, layer in enumerate(self._decoder_layers()):
            state.images[f"{index}.global"] = layer.fusion.project(memory.features[:, -1:])
        return state

    def enter_layer(self, index: int, x: Tensor, images: dict[str, Tensor]) -> Tensor:
        """See `StackedCaptioner.enter_layer`; every word is fused with the global feature."""
        fused: Tensor = self._decoder_layers()[index].fusion(x, images[f"{index}.global"])
        return fused

    def predict(self, outputs: Sequence[Tensor]) -> Tensor:
        return super().predict([self.decoder_output.dropout(outputs[-1])])

    def _cells(self, visual: Visual, features: Tensor) -> tuple[Tensor, int]:
        """Row and column (B or 1, L, 2) of each token, and the number of rows and columns of their grid."""
        if visual.boxes is not None and self.visual.kind == "regions":
            return box_cells(visual.boxes, self.grid), self.grid
        if self.visual.kind == "regions":
            raise ZooError("windows need the boxes of the regions, but the input has none", "or set visual_kind='grid'")
        return square_cells(features.shape[1], features.device), math.isqrt(features.shape[1])

    def _decoder_layers(self) -> list[PureTDecoderLayer]:
        return list(self.decoder_layers)  # type: ignore[arg-type]  # ModuleList is not generic


def _with_global(memory: Memory) -> Memory:
    """The memory with the global feature as the last of its features (B, L + 1, D), for cross-attention."""
    features = torch.cat((memory.features, memory.extra["global"][:, None]), 1)
    return Memory(features, nn.functional.pad(memory.mask, (0, 1), value=True))


_FUSION = re.compile(r"decoder_layers\.\d+\.fusion\.linear\.weight")
_TABLE = "encoder.layers.0.encoder_attn.relative_position_bias_table"
_SHIFTED = "encoder.layers.1.attn_mask"


class _PureTConverter(Converter):
    def tensors(self, official: Mapping[str, Tensor]) -> Tensors:
        """See `Converter.tensors`; the zoo's fusion has the weights of the vector before those of the word."""
        return {
            name: torch.cat(tensor.chunk(2, 1)[::-1], 1) if _FUSION.fullmatch(name) else tensor
            for name, tensor in super().tensors(official).items()
        }

    def sizes(self, official: Mapping[str, Tensor]) -> dict[str, Any]:
        sizes = super().sizes(official)
        sizes["window"] = (math.isqrt(sizes["window"]) + 1) // 2
        if _SHIFTED in official:
            sizes["grid"] = sizes["window"] * math.isqrt(official[_SHIFTED].shape[0])
        return sizes


CONVERTER = _PureTConverter(
    source="PureT",
    renames=(
        (r"^att_embed\b", "input"),
        (r"^decoder\.word_embed\b", "embedding.words"),
        (r"^decoder\.pos_embed\.weight\b", "embedding.positions.table"),
        (r"^decoder\.generator\b", "vocabulary"),
        (r"^encoder\.layers\.(\d+)\.layer_norm2\b", r"encoder_layers.\1.feed_forward_norm"),
        (r"^(en|de)coder\.layers\b", r"\1coder_layers"),
        (r"\bencoder_attn\b|\bword_attn\b", "mixer"),
        (r"\bcross_att\b", "cross_attention"),
        (r"\blayer_norm1\b", "mixer_norm"),
        (r"\blayer_norm2\b", "cross_norm"),
        (r"\blayer_norm3\b", "feed_forward_norm"),
        (r"\bfuse_layer\.0\b", "fusion.linear"),
        (r"\bfuse_layer_norm\b", "fusion.norm"),
        (r"\bff_layer\.fc1\b", "feed_forward.inner"),
        (r"\bff_layer\.fc2\b", "feed_forward.outer"),
        (r"\bq_linear\b", "query"),
        (r"\bk_linear\b", "key"),
        (r"\bv_linear\b", "value"),
        (r"\bo_linear\b", "output"),
        (r"\brelative_position_bias_table\b", "bias_table"),
    ),
    unused=r"^backbone\.|relative_position_index$|attn_mask$",
    size_axes={
        "vocab_size": ("decoder.generator.weight", 0),
        "visual_dim": ("att_embed.0.weight", 1),
        "d_model": ("decoder.generator.weight", 1),
        "d_ff": ("decoder.layers.0.ff_layer.fc1.weight", 0),
        "max_len": ("decoder.pos_embed.weight", 0),
        "n_heads": (_TABLE, 1),
        "window": (_TABLE, 0),
    },
    stacks={"n_encoder_layers": "encoder.layers", "n_decoder_layers": "decoder.layers"},
    padded_positions=True,
    shared_number=("decoder.word_embed.weight", "decoder.generator"),
    backbone="backbone.",
    hint="grid=..., shift=... and the backbone's options must be those of the training",
)
"""Weights of the authors' code, whose number 0 is begin, end and padding: embedding and logits have V + 1 rows.

A model on features leaves the checkpoint's backbone out. Shapes determine neither `shift` nor the backbone, and `grid`
only if the checkpoint has the masks of shifted windows.
"""
