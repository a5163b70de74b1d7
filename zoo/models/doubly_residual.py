"""Shared parts of GET, RSTNet and DLCT: the meshed-memory transformer's decoder without mesh, with double residuals.

Each attention adds its query and normalises (`InnerResidual`), and the layer around it adds its input and normalises
again; the decoder attends to the last output of the encoder. Code:
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
    """norm(q + dropout(W_o a)) of the attended vectors a and the queries q, as the `gate` of an attention.

    With `glu`, GLU(W_o a) replaces W_o a, with a W_o of 2 D rows, the information first (GET's global enhanced
    attention).
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
        branch = self.output(attended)
        if self.glu:
            branch = F.glu(branch, -1)
        output: Tensor = self.norm(query + self.dropout(branch))
        return output


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
    """The decoder with the given cross-attentions, initialised as in the released code.

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
