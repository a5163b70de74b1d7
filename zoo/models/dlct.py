"""The dual-level collaborative transformer, DLCT, on regions and a grid.

Y. Luo, J. Ji, X. Sun, L. Cao, Y. Wu, F. Huang, C.-W. Lin, R. Ji: "Dual-Level Collaborative Transformer for Image
Captioning", AAAI 2021 (arXiv:2101.06462). Code: https://github.com/luo3300612/image-captioning-DLCT (BSD-3-Clause).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.captioner import Memory, Visual, VisualSpec
from zoo.converter import Converter, Tensors
from zoo.errors import ZooError, check_at_least_1
from zoo.layers.geometry import (
    PairWeights,
    PlacedCrossAttention,
    RelationAttention,
    corner_code,
    fill_padded_boxes,
    grid_cells,
)
from zoo.layers.residual import EncoderLayer
from zoo.models.doubly_residual import DoublyResidualCaptioner, EmbeddedTokens, InnerResidual
from zoo.shared_official_names.meshed_memory import (
    DOUBLY_RESIDUAL,
    HINT,
    NAMES,
    SIZES,
    STACKS,
    STATES,
    join_pair_weights,
)


@dataclass(frozen=True, slots=True)
class Geometry:
    """Positions of the R regions and G cells of a batch; N = R + G tokens, the regions first.

    Attributes:
        code: (B, N, D), the position code of each token.
        weights: `PairWeights` of regions with all tokens (B, H, R, N), and of cells with all tokens (B, H, G, N).
        mask: (B, N), true at valid tokens.
        aligned: (B, R, G), see `alignment`.
    """

    code: Tensor
    weights: tuple[Tensor, Tensor]
    mask: Tensor
    aligned: Tensor

    def neighbours(self) -> tuple[Tensor, Tensor]:
        """The tokens visible to a region, itself and its cells (B, R, N), and to a cell, itself and its regions."""
        batch, n_regions, n_cells = self.aligned.shape
        itself = torch.eye(n_regions, dtype=torch.bool, device=self.mask.device).expand(batch, -1, -1)
        of_regions = torch.cat((itself, self.aligned), 2)
        itself = torch.eye(n_cells, dtype=torch.bool, device=self.mask.device).expand(batch, -1, -1)
        of_cells = torch.cat((self.aligned.transpose(1, 2), itself), 2)
        return of_regions, of_cells


def alignment(boxes: Tensor, cells: Tensor) -> Tensor:
    """Whether a box covers a cell, (B, R, G) bool: the cells from its first corner's to its last corner's.

    A corner on a line between cells belongs to the next cell.

    Args:
        boxes: (B, R, 4); cells: (B or 1, G, 4), of a grid over the whole image; x1, y1, x2, y2 in [0, 1].
    """
    low = boxes[:, :, None, :2]
    high = boxes[:, :, None, 2:]
    near = cells[:, None, :, :2]
    far = cells[:, None, :, 2:]
    return (((far > low) | (far >= 1)) & (near <= high)).all(-1)


class DualLevelLayer(nn.Module):
    """Comprehensive relation attention within each level, then locality-constrained attention across.

    Each of the four is an encoder layer around a `RelationAttention`.
    """

    def __init__(self, mixing: Callable[[], EncoderLayer]) -> None:
        super().__init__()
        self.regions, self.grid, self.region_to_grid, self.grid_to_region = (mixing() for _ in range(4))

    def forward(self, x: Tensor, geometry: Geometry, neighbours: tuple[Tensor, Tensor]) -> Tensor:
        """Regions and cells (B, N, D) to the same; `neighbours` are those of the geometry."""
        n_regions = geometry.aligned.shape[1]
        code = geometry.code
        mask = geometry.mask
        regions = slice(None, n_regions)
        cells = slice(n_regions, None)
        region_weights, cell_weights = geometry.weights
        near_regions, near_cells = neighbours
        within_regions = self.regions(x[:, regions], mask[:, regions], code[:, regions], region_weights[..., regions])
        within_grid = self.grid(x[:, cells], mask[:, cells], code[:, cells], cell_weights[..., cells])
        x = torch.cat((within_regions, within_grid), 1)
        across_regions = self.region_to_grid(x[:, regions], near_regions, code[:, regions], region_weights, x, code)
        across_grid = self.grid_to_region(x[:, cells], near_cells, code[:, cells], cell_weights, x, code)
        return torch.cat((across_regions, across_grid), 1)


class DualLevelTransformer(DoublyResidualCaptioner):
    """An encoder of regions and cells, which attend to their own level, then to overlapping tokens of the other level.

    Args:
        grid_dim: channels of the grid's cells; those of the regions if not given.
        dropout: on embedded tokens and probabilities, in every feed-forward and on every branch.
        grid_side: maximum rows and columns of the grid; a finer grid is pooled, as the authors pool theirs.
        codes: whether queries and keys include a code of their position; off by default in the released evaluation.
        pixel_sizes: geometry as released, see `zoo.layers.geometry.pair_geometry`; False for that of the boxes.
        quirks: reproduce faults of the released code: the fixed table of positions starts Xavier-uniform, as random
            numbers; and a region or cell of which one embedded channel is zero counts as padding.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        visual_dim: int,
        grid_dim: int | None = None,
        d_model: int = 512,
        d_ff: int = 2048,
        n_heads: int = 8,
        n_encoder_layers: int = 3,
        n_decoder_layers: int = 3,
        dropout: float = 0.1,
        max_len: int = 54,
        grid_side: int = 7,
        codes: bool = True,
        pixel_sizes: bool = True,
        quirks: bool = False,
    ) -> None:
        def residual() -> InnerResidual:
            return InnerResidual(d_model, dropout)

        def mixing() -> EncoderLayer:
            mixer = RelationAttention(d_model, n_heads, dropout=dropout, gate=residual())
            return EncoderLayer(mixer, d_model, d_ff, dropout, post_norm=True)

        grid_dim = visual_dim if grid_dim is None else grid_dim
        visual = VisualSpec("regions+grid", visual_dim, grid_dim)
        cross = (
            PlacedCrossAttention(d_model, n_heads, dropout=dropout, gate=residual()) for _ in range(n_decoder_layers)
        )
        super().__init__(visual, vocab_size, max_len, d_model, d_ff, n_heads, dropout, cross)
        check_at_least_1(grid_side=grid_side)
        self.grid_side = grid_side
        self.quirks = quirks
        self.region_input = EmbeddedTokens(visual_dim, d_model, dropout)
        self.grid_input = EmbeddedTokens(grid_dim, d_model, dropout)
        self.box_code = nn.Linear(4, d_model) if codes else None
        self.pair_weights = PairWeights(n_heads, pixel_sizes=pixel_sizes)
        self.encoder_layers = nn.ModuleList(DualLevelLayer(mixing) for _ in range(n_encoder_layers))
        self.init_weights(quirks=quirks)

    def region_attention_modules(self) -> Sequence[nn.Module]:
        """See `Captioner.region_attention_modules`: those within the level of the regions."""
        return [layer.get_submodule("regions.mixer") for layer in self.encoder_layers]

    def encode(self, visual: Visual) -> Memory:
        """See `Captioner.encode`; the features (B, R + G, 2 D) are regions, then cells, each with its code."""
        dtype = self.region_input.linear.weight.dtype
        features, mask = visual.valid_features(dtype)
        if visual.boxes is None or visual.grid is None:
            raise ZooError("this model needs regions, their boxes and a grid, but the input lacks boxes or grid")
        pooled = self._pool(visual.grid.to(dtype))
        cells = pooled.flatten(1, 2)
        mask = torch.cat((mask, mask.new_ones(cells.shape[:2])), 1)
        x = torch.cat((self.region_input(features), self.grid_input(cells)), 1)
        if self.quirks:
            x = x * torch.cat([tokens.sum(-1, keepdim=True) != 0 for tokens in (features, cells)], 1)
            mask = (x != 0).all(-1)
        geometry = self._geometry(visual.boxes, pooled, mask)
        neighbours = geometry.neighbours()
        for layer in self.encoder_layers:
            x = layer(x, geometry, neighbours)
        return Memory(torch.cat((x, geometry.code), -1), mask)

    def _pool(self, grid: Tensor) -> Tensor:
        """Average-pool a grid (B, h, w, C) to at most `grid_side` rows and columns."""
        height, width = grid.shape[1:3]
        sides = min(height, self.grid_side), min(width, self.grid_side)
        if sides == (height, width):
            return grid
        return F.adaptive_avg_pool2d(grid.permute(0, 3, 1, 2), sides).permute(0, 2, 3, 1)

    def _geometry(self, boxes: Tensor, grid: Tensor, mask: Tensor) -> Geometry:
        """The geometry of regions with `boxes` (B, R, 4) and the cells of a grid (B, h, w, C)."""
        valid = mask[:, : boxes.shape[1]]
        boxes = fill_padded_boxes(boxes, valid)
        cells = grid_cells(*grid.shape[1:3], like=boxes)[None]
        batch_cells = cells.expand(len(boxes), -1, -1)
        cells_with_cells = self.pair_weights(cells, cells).expand(len(boxes), -1, -1, -1)
        weights = (
            self.pair_weights(boxes, torch.cat((boxes, batch_cells), 1)),
            torch.cat((self.pair_weights(batch_cells, boxes), cells_with_cells), -1),
        )
        aligned = alignment(boxes, cells) & valid[..., None]
        return Geometry(self._code(boxes, batch_cells, grid), weights, mask, aligned)

    def _code(self, boxes: Tensor, cells: Tensor, like: Tensor) -> Tensor:
        """The position codes (B, N, D) of regions and cells; zeros without `codes`."""
        d_model = self.embedding.words.embedding_dim
        if self.box_code is None:
            return like.new_zeros(len(boxes), boxes.shape[1] + cells.shape[1], d_model)
        return torch.cat((self.box_code(boxes.to(like.dtype)), corner_code(cells, d_model).to(like.dtype)), 1)


class _DLCTConverter(Converter):
    def tensors(self, official: Mapping[str, Tensor]) -> Tensors:
        return super().tensors(join_pair_weights(official))

    def select(self, name: str, official: Mapping[str, Tensor], sizes: Mapping[str, Any]) -> Tensors:
        tensors = super().select(name, official, sizes)
        if sizes.get("codes", True):
            return tensors
        return {name: tensor for name, tensor in tensors.items() if not name.startswith("box_code.")}


CONVERTER = _DLCTConverter(
    source="DLCT",
    renames=(
        (r"^encoder\.fc_(region|grid)\b", r"\1_input.linear"),
        (r"^encoder\.layer_n(?:or|ro)m_(region|grid)\b", r"\1_input.norm"),
        (r"^encoder\.layers_region\.(\d+)", r"encoder_layers.\1.regions"),
        (r"^encoder\.layers_grid\.(\d+)", r"encoder_layers.\1.grid"),
        (r"^encoder\.region2grid\.(\d+)", r"encoder_layers.\1.region_to_grid"),
        (r"^encoder\.grid2region\.(\d+)", r"encoder_layers.\1.grid_to_region"),
        (r"^box_embedding\b", "box_code"),
        *NAMES,
        *DOUBLY_RESIDUAL,
    ),
    unused=STATES,
    size_axes={**SIZES, "visual_dim": ("encoder.fc_region.weight", 1), "grid_dim": ("encoder.fc_grid.weight", 1)},
    stacks={**STACKS, "n_encoder_layers": "encoder.layers_region"},
    fixed={"quirks": True},
    padded_positions=True,
    hint=HINT,
)
"""Weights of the authors' code, trained with its faults: see `zoo.shared_official_names.meshed_memory`.

`codes=False` leaves the checkpoint's code of boxes out.
"""
