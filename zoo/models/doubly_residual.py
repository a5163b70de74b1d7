"""What GET, RSTNet and DLCT share: the decoder of the meshed-memory transformer without its mesh, doubly residual.

Each attention adds its query and normalises, and the layer around it adds its input and normalises again
(`InnerResidual`); the decoder attends to the last output of the encoder. Code:
https://github.com/luo3300612/image-captioning-DLCT, https://github.com/zhangxuying1004/RSTNet (both BSD-3-Clause),
which also zero the rows of padding words, as that of the meshed-memory transformer does (see `zoo.models.m2`).
"""

from collections.abc import Iterable

from torch import Tensor, nn
from torch.nn import functional as F

from zoo.captioner import VisualSpec
from zoo.layers.attention import MultiHeadAttention, SelfAttention
from zoo.layers.residual import DecoderLayer
from zoo.stacked import StackedCaptioner


class InnerResidual(nn.Module):
    """norm(q + dropout(W_o a)) of the heads' answer a and the query q as it entered; the `gate` of an attention.

    DLCT's released code wraps every attention so. With `glu` the answer is GLU(W_o a), with a W_o of 2 D rows, the
    information first: the answer is weighed channel by channel before it is added (GET's global enhanced attention).
    """

    def __init__(self, d_model: int, dropout: float, *, glu: bool = False) -> None:
        super().__init__()
        self.glu = glu
        self.output = nn.Linear(d_model, 2 * d_model if glu else d_model)
        self.matrices_in = {"output": 2 if glu else 1}
        self.dropout = nn.Dropout(dropout)
        self.norm = nn.LayerNorm(d_model)

    def forward(self, attended: Tensor, query: Tensor) -> Tensor:
        """Two tensors (..., D) to (..., D)."""
        answer = self.output(attended)
        added: Tensor = self.norm(query + self.dropout(F.glu(answer, -1) if self.glu else answer))
        return added


class EmbeddedTokens(nn.Module):
    """norm(dropout(relu(W f + b))) of visual features (..., C)."""

    def __init__(self, visual_dim: int, d_model: int, dropout: float) -> None:
        super().__init__()
        self.linear = nn.Linear(visual_dim, d_model)
        self.dropout = nn.Dropout(dropout)
        self.norm = nn.LayerNorm(d_model)

    def forward(self, features: Tensor) -> Tensor:
        """(..., C) to (..., D)."""
        embedded: Tensor = self.norm(self.dropout(self.linear(features).relu()))
        return embedded


class DoublyResidualCaptioner(StackedCaptioner):
    """Embeds words, decodes with the given cross-attentions, and starts as the released code does.

    Args:
        dropout: on probabilities, in every feed-forward and on every branch.
        cross_attentions: one of each decoder layer.
    """

    def __init__(
        self,
        visual: VisualSpec,
        vocab_size: int,
        max_len: int,
        d_model: int,
        d_ff: int,
        n_heads: int,
        dropout: float,
        cross_attentions: Iterable[MultiHeadAttention],
    ) -> None:
        super().__init__(visual, vocab_size, max_len)
        layers = (
            DecoderLayer(word_mixer(d_model, n_heads, dropout), cross, d_model, d_ff, dropout, post_norm=True)
            for cross in cross_attentions
        )
        self.build_decoder(d_model, dropout, layers)

    def init_weights(self, *, quirks: bool = False) -> None:
        """See `StackedCaptioner.init_weights`; biases of attention are zero."""
        for module in self.modules():
            if isinstance(module, MultiHeadAttention | InnerResidual):
                for layer in module.children():
                    if isinstance(layer, nn.Linear):
                        nn.init.zeros_(layer.bias)
        super().init_weights(quirks=quirks)


def word_mixer(d_model: int, n_heads: int, dropout: float) -> SelfAttention:
    """Causal self-attention of words."""
    gate = InnerResidual(d_model, dropout)
    return SelfAttention(d_model, n_heads, causal=True, dropout=dropout, gate=gate)
