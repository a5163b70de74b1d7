"""Image Transformer: AoANet with an encoder along a spatial graph of regions, and sub-transformers in its decoder.

S. He, W. Liao, H. R. Tavakoli, M. Yang, B. Rosenhahn, N. Pugeault: "Image Captioning through Image Transformer", ACCV
2020 (arXiv:2004.14231). Code: https://github.com/wtliao/ImageTransformer (no licence stated), which builds on AoANet's.

Where code and paper differ, this follows the code, except for the spatial graph, where `graph` chooses
(`zoo.layers.spatial_graph`).
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
    """AoANet's refiner whose `wide` layers, counted from 1, have three attentions (section 3.2).

    These are for parents, neighbours and children of a region, where there is a spatial graph.
    """

    def __init__(self, d_model: int, n_heads: int, n_layers: int, dropouts: AoADropouts, wide: Collection[int]) -> None:
        super().__init__()
        self.wide = frozenset(wide)
        self.layers = nn.ModuleList()
        for number in range(1, n_layers + 1):
            if number not in self.wide:
                self.layers.append(aoa_layer(d_model, n_heads, dropouts))
                continue
            gate = AttentionOnAttention(d_model, dropouts.gate)
            mixer = SpatialGraphAttention(d_model, n_heads, dropouts.attention, gate)
            self.layers.append(EncoderLayer(mixer, d_model, None, dropouts.branch, norm=AnnotatedNorm))
        self.norm = AnnotatedNorm(d_model)

    def forward(self, x: Tensor, mask: Tensor, graph: Tensor | None = None) -> Tensor:
        """(B, L, D) to (B, L, D); `mask` (B, L) is true at valid regions, `graph` (B, L, L) is of `spatial_graph`."""
        for number, layer in enumerate(self.layers, 1):
            x = layer(x, mask) if graph is None or number not in self.wide else layer(x, mask, graph)
        encoded: Tensor = self.norm(x)
        return encoded


class ImageTransformer(AoACaptioner):
    """A spatial graph transformer over regions, and an LSTM decoder with M sub-transformers (`AoACaptioner`).

    Args:
        d_word: width of word embeddings; d_model if not given.
        dropout: on embedded regions and words, on the context that is fed back to the LSTM, and before the vocabulary.
        attention_dropout: in the encoder and the decoder.
        wide_layers: encoder layers, counted from 1, with three attentions; None: all.
        spatial: whether these attend along the graph of parents, neighbours and children; otherwise their three
            attentions use all regions and are averaged.
        sub_transformers: M, parallel ones in the decoder: keys and values of the image for each query, whose answers
            are averaged.
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
        head_width(d_model, n_heads)
        every_layer = range(1, n_encoder_layers + 1)
        wide = set(every_layer if wide_layers is None else wide_layers)
        if outside := sorted(wide - set(every_layer)):
            raise ZooError(f"wide_layers names layer {outside[0]}, but n_encoder_layers is {n_encoder_layers}")
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
        self.sees_graph, self.graph = spatial and bool(wide), graph

    def refine(self, regions: Tensor, mask: Tensor, visual: Visual) -> Tensor:
        """See `AoACaptioner.refine`; along the spatial graph, where layers attend along one. ZooError without boxes."""
        relations = None
        if self.sees_graph:
            if visual.boxes is None:
                raise ZooError("the spatial graph needs the regions' boxes, and there are none", "or set spatial=False")
            relations = spatial_graph(visual.boxes, mask, mode=self.graph)
        assert self.refiner is not None
        encoded: Tensor = self.refiner(regions, mask, relations)
        return encoded


CONVERTER = replace(
    AOANET_CONVERTER,
    source="the Image Transformer",
    renames=(
        (r"self_attn\.q_linears\b", "mixer.query"),
        (r"self_attn\.k_linears\b", "mixer.keys"),
        (r"self_attn\.v_linears\b", "mixer.values"),
        *AOANET_CONVERTER.renames,
        (r"^core\.implicit(\d+)\b", lambda match: f"memories.{int(match[1]) - 1}"),
    ),
)
"""Weights of the authors' code, which builds on AoANet's. Shapes do not determine `n_heads` and `graph`."""
