"""Image Transformer.

S. He, W. Liao, H. R. Tavakoli, M. Yang, B. Rosenhahn, N. Pugeault: "Image Captioning through Image Transformer", ACCV
2020 (arXiv:2004.14231). Code: https://github.com/wtliao/ImageTransformer (no licence stated), which builds on AoANet.
Where code and paper differ, this follows the code, except for the spatial graph, where `graph` chooses.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from zoo.captioner import Visual
from zoo.errors import ZooError
from zoo.layers.aoa import AoADropouts, AoARefiner, GraphMode, spatial_graph
from zoo.models.aoanet import AoACaptioner

_GRAPHS = ("paper", "official")


class ImageTransformer(AoACaptioner):
    """AoANet whose refiner attends along a spatial graph, and whose decoder attends to M memories of the image.

    Args:
        vocab_size, visual_dim, d_model, n_heads, n_encoder_layers: sizes.
        d_word: width of word embeddings; d_model if not given.
        dropout: see `AoACaptioner`.
        attention_dropout, branch_dropout, gate_dropout: in the refiner; the first one in the decoder too.
        max_len: maximum caption length; no parameter depends on it.
        wide_layers: encoder layers, counted from 1, with three attentions; the others are AoANet's. All by default.
        spatial: whether these attend along the graph of parents, neighbours and children; otherwise their three
            attentions use all regions and are averaged.
        sub_transformers: M of the decoder, the paper's number of parallel sub-transformers.
        graph: how the graph is built from boxes; see `GraphMode`.
        threshold: minimum share of its area for a region to be inside another.
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
        branch_dropout: float = 0.1,
        gate_dropout: float = 0.3,
        max_len: int = 74,
        wide_layers: Sequence[int] | None = None,
        spatial: bool = True,
        sub_transformers: int = 3,
        graph: GraphMode = "paper",
        threshold: float = 0.9,
    ) -> None:
        every_layer = range(1, n_encoder_layers + 1)
        wide = set(every_layer if wide_layers is None else wide_layers)
        if outside := sorted(wide - set(every_layer)):
            raise ZooError(f"wide_layers names layer {outside[0]}, but n_encoder_layers is {n_encoder_layers}")
        if graph not in _GRAPHS:
            raise ZooError(f"graph cannot be {graph!r}", f"it is one of {', '.join(_GRAPHS)}")
        if sub_transformers < 1:
            raise ZooError(f"sub_transformers must be at least 1, not {sub_transformers}")
        if not 0 < threshold <= 1:
            raise ZooError(f"threshold must lie above 0 and be at most 1, not {threshold}")
        dropouts = AoADropouts(attention_dropout, branch_dropout, gate_dropout)
        super().__init__(
            vocab_size=vocab_size,
            visual_dim=visual_dim,
            d_model=d_model,
            d_word=d_model if d_word is None else d_word,
            n_heads=n_heads,
            max_len=max_len,
            dropout=dropout,
            attention_dropout=attention_dropout,
            refiner=AoARefiner(d_model, n_heads, n_encoder_layers, dropouts, wide),
            n_memories=sub_transformers,
            values_first=sub_transformers == 1,  # with M = 1, the authors use AoANet's decoder
        )
        self.sees_graph = spatial and bool(wide)
        self.graph: GraphMode = graph
        self.threshold = threshold

    def relations(self, visual: Visual, mask: Tensor) -> tuple[Tensor, ...]:
        """The spatial graph, if `spatial`; ZooError without boxes."""
        if not self.sees_graph:
            return ()
        if visual.boxes is None:
            raise ZooError("the spatial graph needs the regions' boxes, and there are none", "or set spatial=False")
        return (spatial_graph(visual.boxes, mask, threshold=self.threshold, mode=self.graph),)
