"""Image Transformer: AoANet with a spatial graph transformer as its encoder, and sub-transformers in its decoder.

S. He, W. Liao, H. R. Tavakoli, M. Yang, B. Rosenhahn, N. Pugeault: "Image Captioning through Image Transformer", ACCV
2020 (arXiv:2004.14231). Code: https://github.com/wtliao/ImageTransformer (no licence stated), which builds on AoANet's.

Where code and paper differ, this follows the code, except for the spatial graph: by default it is the paper's, and with
`graph="official"` the code's (`zoo.layers.spatial_graph`).
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

from torch import Tensor, nn

from zoo.captioner import Visual
from zoo.errors import ZooError, check_at_least_1, check_choice
from zoo.layers.annotated_norm import AnnotatedNorm
from zoo.layers.aoa import AoADropouts, AttentionOnAttention, aoa_layer
from zoo.layers.attention import head_width
from zoo.layers.residual import EncoderLayer
from zoo.layers.spatial_graph import GraphMode, SpatialGraphAttention, spatial_graph
from zoo.models.aoanet import BRANCH_DROPOUT, GATE_DROPOUT, AoACaptioner
from zoo.models.aoanet import CONVERTER as AOANET_CONVERTER


class SpatialEncoder(nn.Module):
    """AoANet's refiner, some of whose layers have three attentions: to parents, neighbours and children (section 3.2).

    Args:
        wide: the layers with three attentions, counted from 1; the paper calls such a transformer layer wider.
    """

    def __init__(self, d_model: int, n_heads: int, n_layers: int, dropouts: AoADropouts, wide: Collection[int]) -> None:
        super().__init__()
        self.wide = frozenset(wide)
        self.layers = nn.ModuleList()
        for index in range(1, n_layers + 1):
            if index in self.wide:
                gate = AttentionOnAttention(d_model, dropouts.gate)
                mixer = SpatialGraphAttention(d_model, n_heads, dropouts.attention, gate)
                layer = EncoderLayer(mixer, d_model, d_ff=None, dropout=dropouts.branch, norm=AnnotatedNorm)
            else:
                layer = aoa_layer(d_model, n_heads, dropouts)
            self.layers.append(layer)
        self.norm = AnnotatedNorm(d_model)

    def forward(self, x: Tensor, mask: Tensor, graph: Tensor | None = None) -> Tensor:
        """Encode regions (B, L, D) to the same shape.

        Args:
            mask: (B, L), true at valid regions.
            graph: (B, L, L), from `spatial_graph`: each attention keeps the regions of its relation, and the three are
                summed; without it, all attend to all regions and are averaged.
        """
        for index, layer in enumerate(self.layers, 1):
            use_graph = graph is not None and index in self.wide
            x = layer(x, mask, graph) if use_graph else layer(x, mask)
        encoded: Tensor = self.norm(x)
        return encoded


class ImageTransformer(AoACaptioner):
    """A spatial graph transformer over regions, and an LSTM decoder with M sub-transformers (`AoACaptioner`).

    Args:
        d_word: width of word embeddings; d_model if not given.
        dropout: on embedded regions and words, on the context that is fed back to the LSTM, and before the vocabulary.
        attention_dropout: in the encoder and the decoder.
        wide_layers: encoder layers, counted from 1, with three attentions; None for all.
        spatial: whether each of these three attends to one relation of the graph, parents, neighbours or children;
            otherwise all three attend to all regions and are averaged.
        sub_transformers: M, parallel cross-attentions in the decoder, whose results are averaged (`n_memories` of
            `AoACaptioner`, `core.implicit*` in the authors' code).
        graph: how the graph is built from boxes; see `GraphMode`.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        visual_dim: int,
        d_model: int = 1024,
        d_word: int | None = None,
        n_heads: int = 8,
        n_encoder_layers: int = 3,
        dropout: float = 0.5,
        attention_dropout: float = 0.1,
        max_len: int = 74,
        wide_layers: Sequence[int] | None = None,
        spatial: bool = True,
        sub_transformers: int = 3,
        graph: GraphMode = "paper",
    ) -> None:
        head_width(d_model, n_heads)  # raises where the heads do not divide d_model
        all_layers = range(1, n_encoder_layers + 1)
        wide = set(all_layers if wide_layers is None else wide_layers)
        nonexistent = sorted(wide - set(all_layers))
        if nonexistent:
            raise ZooError(f"wide_layers names layer {nonexistent[0]}, but n_encoder_layers is {n_encoder_layers}")
        check_choice("graph", graph, ("paper", "official"))
        check_at_least_1(sub_transformers=sub_transformers)
        dropouts = AoADropouts(attention_dropout, BRANCH_DROPOUT, GATE_DROPOUT)
        super().__init__(
            vocab_size=vocab_size,
            visual_dim=visual_dim,
            d_model=d_model,
            d_word=d_word,
            n_heads=n_heads,
            n_memories=sub_transformers,
            refiner=SpatialEncoder(d_model, n_heads, n_encoder_layers, dropouts, wide),
            dropout=dropout,
            attention_dropout=attention_dropout,
            max_len=max_len,
        )
        self.uses_graph = spatial and bool(wide)
        self.graph_mode = graph

    def refine(self, regions: Tensor, mask: Tensor, visual: Visual) -> Tensor:
        """Encode the regions (B, L, D); with the spatial graph of their boxes if `uses_graph`."""
        graph = None
        if self.uses_graph:
            if visual.boxes is None:
                raise ZooError(
                    "the spatial graph needs the boxes of the regions, but the input has none", "or set spatial=False"
                )
            graph = spatial_graph(visual.boxes, mask, mode=self.graph_mode)
        assert self.refiner is not None
        encoded: Tensor = self.refiner(regions, mask, graph)
        return encoded


CONVERTER = replace(
    AOANET_CONVERTER,
    source="the Image Transformer",
    renames=(
        # One query for all three attentions; keys and values are one each, in the order of `SpatialGraphAttention`.
        (r"self_attn\.q_linears\b", "mixer.query"),
        (r"self_attn\.k_linears\b", "mixer.keys"),
        (r"self_attn\.v_linears\b", "mixer.values"),
        *AOANET_CONVERTER.renames,
        (r"^core\.implicit(\d+)\b", lambda match: f"memories.{int(match[1]) - 1}"),  # theirs count from 1
    ),
)
"""Weights of the authors' code, which builds on AoANet's. Not in them: `n_heads`, `graph`, `spatial`."""
