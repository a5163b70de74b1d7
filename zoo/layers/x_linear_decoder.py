"""A decoder layer of X-Transformer, of https://github.com/JDAI-CV/image-captioning (no licence stated)."""

from __future__ import annotations

from torch import Tensor, nn

from zoo.layers.fusion import Fusion
from zoo.layers.residual import ResidualLayer
from zoo.layers.x_linear import Seen, XLinearAttention
from zoo.layers.x_linear_encoder import XLinearDropouts


class XLinearDecoderLayer(ResidualLayer):
    """u = x + attention(g; words), g <- norm(u + attention(norm(u); regions)), then x <- feed_forward(fusion(x, g)).

    Attentions are followed by dropout. The last layer of a stack leaves x as it is, since nothing reads it.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        d_attention: int | None,
        d_ff: int,
        dropouts: XLinearDropouts,
        *,
        last: bool,
    ) -> None:
        super().__init__(dropouts.branch, post_norm=True)
        self.word_attention = XLinearAttention(d_model, n_heads, d_attention, dropouts.attention)
        self.cross_attention = XLinearAttention(d_model, n_heads, d_attention, dropouts.attention)
        self.cross_norm, self.query_norm = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.fusion = None if last else Fusion(d_model, dropouts.fusion)
        self.add_feed_forward(d_model, None if last else d_ff, nn.LayerNorm)

    def forward(
        self,
        query: Tensor,
        x: Tensor,
        words: tuple[Tensor, Tensor],
        words_seen: Seen | None,
        regions: tuple[Tensor, Tensor],
        regions_seen: Seen,
    ) -> tuple[Tensor, Tensor]:
        """The next queries g and words x.

        Args:
            query, x: (B * n, T, D).
            words: keys and values of the words, from `word_attention.project`, those before x included.
            words_seen: by each position; None for all.
            regions: keys and values of B images, from `cross_attention.project`.
            regions_seen: of each image.
        """
        read = x + self.dropout(self.word_attention(query, *words, words_seen))
        looked = self.cross_attention(self.cross_norm(read), *regions, regions_seen)
        query = self.query_norm(read + self.dropout(looked))
        return query, x if self.fusion is None else self.feed(self.fusion(x, self.fusion.project(query)))
