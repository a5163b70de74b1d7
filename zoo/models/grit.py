"""GRIT: a caption head that attends to regions and to a grid, in parallel, one after the other, or concatenated.

V.-Q. Nguyen, M. Suganuma, T. Okatani: "GRIT: Faster and Better Image captioning Transformer Using Dual Visual
Features", ECCV 2022 (arXiv:2207.09666). Code: https://github.com/davidnvq/grit (headers: Creative Commons
Attribution). The detector that computes both streams is left out: regions and grid are features of the run.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.captioner import Memory, Visual, VisualSpec
from zoo.converter import Converter, Tensors
from zoo.errors import ZooError, check_choice
from zoo.layers.attention import MultiHeadAttention, SelfAttention, mask_to_bias
from zoo.layers.residual import DecoderLayer, EncoderLayer
from zoo.models.doubly_residual import EmbeddedTokens
from zoo.registry import default_arguments
from zoo.shared_official_names.meshed_memory import BRANCHES, HINT, NAMES, STATES
from zoo.stacked import StackedCaptioner


class TwoStreamLayer(DecoderLayer):
    """A post-norm decoder layer with cross-attention to regions and to cells, each with weights of its own.

    With l_g(x) = norm(x + attention_g(x)) over the grid and l_r over the regions, the output is l_r(l_g(x)), or if
    `gated` sum_m sigmoid(W [x; l_m(x)] + b) * l_m(x) / sqrt(2) over both. The released code has a second, unused gate.
    """

    def __init__(self, d_model: int, d_ff: int, n_heads: int, dropout: float, *, gated: bool) -> None:
        mixer = SelfAttention(d_model, n_heads, causal=True, dropout=dropout)
        regions, grid = (MultiHeadAttention(d_model, n_heads, dropout=dropout) for _ in range(2))
        super().__init__(mixer, regions, d_model, d_ff, dropout, post_norm=True)
        self.grid_norm = nn.LayerNorm(d_model)
        self.grid_attention = grid
        self.gates = nn.ModuleList(nn.Linear(2 * d_model, d_model) for _ in range(gated))

    def cross_attention_branch(
        self, x: Tensor, keys: Tensor, values: Tensor, memory_mask: Tensor | None, *_: Tensor
    ) -> Tensor:
        """See `DecoderLayer.cross_attention_branch`; keys and values are of R regions, then of cells, the mask of R."""
        assert memory_mask is not None
        count = memory_mask.shape[-1]
        attended = self.grid_attention(x, keys[:, :, count:], values[:, :, count:])
        grid = self.add_branch(x, attended, self.grid_norm)
        queries = x if self.gates else grid
        attended = self.cross_attention(queries, keys[:, :, :count], values[:, :, :count], memory_mask)
        regions = self.add_branch(queries, attended, self.cross_norm)
        if not self.gates:
            return regions
        gated = [self.gates[0](torch.cat((x, stream), -1)).sigmoid() * stream for stream in (grid, regions)]
        return torch.add(*gated) / math.sqrt(2)


class GRIT(StackedCaptioner):
    """Self-attention over the grid, and a decoder that attends to the regions and this grid; all post-norm.

    Args:
        n_encoder_layers: of the grid.
        grid_dim: channels of the grid's cells; those of the regions if not given.
        dropout: on embedded tokens and probabilities, in every feed-forward and on every branch.
        heads: how a decoder layer attends to both streams. "parallel" attends to each and adds gated results,
            "sequential" attends to the grid and then to the regions, "concatenated" has one attention to both.
        embed_regions: embed the regions as the grid, norm(dropout(relu(W r + b))). The released detector has regions
            of d_model channels, to which the decoder attends directly.
        quirks: reproduce a fault of the released code: the fixed table of positions starts Xavier-uniform, as random
            numbers.
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
        dropout: float = 0.2,
        max_len: int = 54,
        heads: Literal["parallel", "sequential", "concatenated"] = "parallel",
        embed_regions: bool = True,
        quirks: bool = False,
    ) -> None:
        grid_dim = visual_dim if grid_dim is None else grid_dim
        super().__init__(VisualSpec("regions+grid", visual_dim, grid_dim), vocab_size, max_len)
        check_choice("heads", heads, ("parallel", "sequential", "concatenated"))
        if not embed_regions and visual_dim != d_model:
            raise ZooError(
                f"regions of {visual_dim} channels need to be embedded in d_model {d_model}",
                f"set embed_regions=True, or d_model={visual_dim}",
            )

        def decoder_layer() -> DecoderLayer:
            if heads != "concatenated":
                return TwoStreamLayer(d_model, d_ff, n_heads, dropout, gated=heads == "parallel")
            mixer = SelfAttention(d_model, n_heads, causal=True, dropout=dropout)
            cross_attention = MultiHeadAttention(d_model, n_heads, dropout=dropout)
            return DecoderLayer(mixer, cross_attention, d_model, d_ff, dropout, post_norm=True)

        self.region_input = EmbeddedTokens(visual_dim, d_model, dropout) if embed_regions else nn.Identity()
        self.grid_input = EmbeddedTokens(grid_dim, d_model, dropout)
        self.encoder_layers = nn.ModuleList()
        for _ in range(n_encoder_layers):
            mixer = SelfAttention(d_model, n_heads, causal=False, dropout=dropout)
            self.encoder_layers.append(EncoderLayer(mixer, d_model, d_ff, dropout, post_norm=True))
        self.build_decoder(d_model, dropout, (decoder_layer() for _ in range(n_decoder_layers)))
        self.concatenated = heads == "concatenated"
        self.init_weights(quirks=quirks)

    def region_attention_modules(self) -> Sequence[nn.Module]:
        """See `Captioner.region_attention_modules`: only cells of the grid attend to each other, not regions."""
        return ()

    def encode(self, visual: Visual) -> Memory:
        """See `Captioner.encode`.

        The features are the regions (B, R, D), with the cells (B, G, D) as `grid` in `extra`. Concatenated heads have
        both as features, the regions first.
        """
        dtype = self.vocabulary.weight.dtype
        features, mask = visual.valid_features(dtype)
        if visual.grid is None:
            raise ZooError("this model needs regions and a grid, but the input has no grid")
        cells = self.grid_input(visual.grid.to(dtype).flatten(1, 2))
        for layer in self.encoder_layers:
            cells = layer(cells)
        regions = self.region_input(features)
        if not self.concatenated:
            return Memory(regions, mask, {"grid": cells})
        return Memory(torch.cat((regions, cells), 1), F.pad(mask, (0, cells.shape[1]), value=True))

    def _project_memory(self, memory: Memory) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """See `StackedCaptioner`; keys and values of the regions, then of the cells, which have no attention bias."""
        if self.concatenated:
            return super()._project_memory(memory)
        layers: list[TwoStreamLayer] = list(self.decoder_layers)  # type: ignore[arg-type]  # ModuleList is not generic
        regions = [layer.cross_attention.project(memory.features) for layer in layers]
        cells = [layer.grid_attention.project(memory.extra["grid"]) for layer in layers]
        attention_bias, all_keys = mask_to_bias(memory.mask, [keys for keys, _ in regions])
        projected = []
        for keys, (_, values), (cell_keys, cell_values) in zip(all_keys, regions, cells, strict=True):
            projected.append((torch.cat((keys, cell_keys), 2), torch.cat((values, cell_values), 2)))
        return attention_bias, projected


_FIRST = "cap_generator.layers.0."


class _GRITConverter(Converter):
    def select(self, name: str, official: Mapping[str, Tensor], sizes: Mapping[str, Any]) -> Tensors:
        heads = sizes["heads"]
        model_heads = default_arguments(name)["heads"]
        if heads != model_heads:
            variant = "grit" if heads == "parallel" else f"grit/{heads}"
            raise ZooError(f"these weights have {heads} heads, but {name} has {model_heads} heads", f"choose {variant}")
        return super().select(name, official, sizes)

    def sizes(self, official: Mapping[str, Tensor]) -> dict[str, Any]:
        if f"{_FIRST}vis_att.attention.fc_q.weight" in official:
            heads = "concatenated"
        elif f"{_FIRST}fc_alpha1.weight" in official:
            heads = "parallel"
        else:
            heads = "sequential"
        return {**super().sizes(official), "heads": heads}


CONVERTER = _GRITConverter(
    source="GRIT",
    renames=(
        (r"^grid_net\.fc\b", "grid_input.linear"),
        (r"^grid_net\.layer_norm\b", "grid_input.norm"),
        (r"^grid_net\.", "encoder."),
        (r"^cap_generator\.", "decoder."),
        *NAMES,
        (r"\bvis_att1\b", "grid"),
        (r"\bvis_att2?\b", "cross"),
        *BRANCHES,
        (r"\bfc_alpha1\b", "gates.0"),
    ),
    # The detector, states of decoding, a gate and memory slots that the released code never uses.
    unused=rf"^detector\.|{STATES}|\bfc_alpha2\b|\bm_[kv]\b",
    size_axes={
        "vocab_size": ("cap_generator.fc.weight", 0),
        "visual_dim": ("cap_generator.fc.weight", 1),
        "grid_dim": ("grid_net.fc.weight", 1),
        "d_model": ("grid_net.fc.weight", 0),
        "d_ff": (f"{_FIRST}pwff.fc1.weight", 0),
        "max_len": ("cap_generator.pos_emb.weight", 0),
    },
    stacks={"n_encoder_layers": "grid_net.layers", "n_decoder_layers": "cap_generator.layers"},
    fixed={"embed_regions": False, "quirks": True},
    padded_positions=True,
    hint=HINT,
)
"""Weights of the authors' caption head, trained with the faults of its code (see
`zoo.shared_official_names.meshed_memory`).

They were trained on the detector's regions without embedding, and with a random table of positions. The kind of heads
follows from the names of tensors.
"""
