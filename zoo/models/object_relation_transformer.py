"""The object relation transformer: a transformer with geometric attention in its encoder.

S. Herdade, A. Kappeler, K. Boakye, J. Soares: "Image Captioning: Transforming Objects into Words", NeurIPS 2019
(arXiv:1906.05963). Code: https://github.com/yahoo/object_relation_transformer (MIT). This follows the paper where the
code differs: it adds 1 to the width and height of boxes already in [0, 1], and inverts the ratio of sizes.
Weights trained with it assume that geometry, so there is no converter.
"""

from __future__ import annotations

from torch import Tensor, nn

from zoo.captioner import Visual
from zoo.errors import ZooError
from zoo.layers.geometry import GeometricAttention, box_geometry
from zoo.models.transformer import Transformer


class ObjectRelationTransformer(Transformer):
    """`Transformer` with geometric attention instead of self-attention in the encoder; takes its arguments."""

    def region_mixer(self, d_model: int, n_heads: int, dropout: float) -> nn.Module:
        """See `Transformer.region_mixer`."""
        return GeometricAttention(d_model, n_heads, dropout=dropout)

    def relations(self, visual: Visual, mask: Tensor) -> tuple[Tensor, ...]:
        """See `Transformer.relations`: the geometry of all pairs of boxes."""
        if visual.boxes is None:
            raise ZooError("this model needs the regions' boxes, and got none")
        return (box_geometry(visual.boxes, mask),)
