"""The global enhanced transformer, GET.

J. Ji, Y. Luo, X. Sun, F. Chen, G. Luo, Y. Wu, Y. Gao, R. Ji: "Improving Image Captioning by Leveraging Intra- and
Inter-layer Global Representation in Transformer Network", AAAI 2021 (arXiv:2012.07061). Code: `models/GET` in
https://github.com/luo3300612/image-captioning-DLCT (BSD-3-Clause), released without its training. The paper's global
adaptive controller is not a module there: the global token is one more token of cross-attention.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.captioner import Memory, Visual, VisualSpec
from zoo.converter import Converter, Tensors, reorder_gates
from zoo.layers.attention import MultiHeadAttention, SelfAttention
from zoo.layers.lstm import LSTMCell
from zoo.layers.residual import EncoderLayer
from zoo.models.doubly_residual import DoublyResidualCaptioner, EmbeddedTokens, InnerResidual
from zoo.shared_official_names.meshed_memory import DOUBLY_RESIDUAL, HINT, NAMES, SIZES, STACKS, STATES


class GlobalEnhancedTransformer(DoublyResidualCaptioner):
    """An encoder of a global token and regions, with gated attention; an LSTM fuses the global tokens of all layers.

    Args:
        dropout: on embedded regions and probabilities, in every feed-forward and on every branch.
        fusion: whether the LSTM's last state replaces the global token for the decoder; off by default in their code.
        quirks: reproduce faults of the released code: the fixed table of positions starts Xavier-uniform, as random
            numbers; and padding is inferred from the embedded regions after their norm, which finds none, so that an
            image's captions depend on its padding.
    """

    n_prefix_tokens = 1

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
        max_len: int = 54,
        fusion: bool = True,
        quirks: bool = False,
    ) -> None:
        def gate() -> InnerResidual:
            return InnerResidual(d_model, dropout, glu=True)

        cross = (MultiHeadAttention(d_model, n_heads, dropout=dropout, gate=gate()) for _ in range(n_decoder_layers))
        visual = VisualSpec("regions", visual_dim)
        super().__init__(visual, vocab_size, max_len, d_model, d_ff, n_heads, dropout, cross)
        self.quirks = quirks
        self.input = EmbeddedTokens(visual_dim, d_model, dropout)
        self.encoder_layers = nn.ModuleList()
        for _ in range(n_encoder_layers):
            mixer = SelfAttention(d_model, n_heads, causal=False, dropout=dropout, gate=gate())
            self.encoder_layers.append(EncoderLayer(mixer, d_model, d_ff, dropout, post_norm=True))
        self.fusion = LSTMCell(d_model, d_model, d_model) if fusion else None
        self.init_weights(quirks=quirks)

    def encode(self, visual: Visual) -> Memory:
        """See `Captioner.encode`; the first token is the global one, which starts as the mean of the regions."""
        features, mask = visual.valid_features(self.input.linear.weight.dtype)
        mean = features.sum(1, keepdim=True) / mask.sum(1).clamp(min=1)[:, None, None]
        x = self.input(torch.cat((mean, features), 1))
        mask = x.sum(-1) != 0 if self.quirks else F.pad(mask, (1, 0), value=True)
        tokens = []
        for layer in self.encoder_layers:
            x = layer(x, mask)
            tokens.append(x[:, 0])
        if self.fusion is not None:  # the inter-layer representation, of the global tokens of all layers
            hidden = state = torch.zeros_like(tokens[0])
            for token in tokens:
                hidden, state = self.fusion(self.fusion.project(token), hidden, state)
            x = torch.cat((hidden[:, None], x[:, 1:]), 1)
        return Memory(x, mask)


class _GETConverter(Converter):
    def tensors(self, official: Mapping[str, Tensor]) -> Tensors:
        reordered = dict(official)
        for key, tensor in official.items():
            if key.startswith("encoder.rnn."):
                reordered[key] = reorder_gates(tensor)
        return super().tensors(reordered)


CONVERTER = _GETConverter(
    source="GET",
    renames=(
        (r"^encoder\.fc\b", "input.linear"),
        (r"^encoder\.layer_norm\b", "input.norm"),
        (r"^encoder\.rnn\.(weight|bias)_ih_l0\b", r"fusion.input.\1"),
        (r"^encoder\.rnn\.(weight|bias)_hh_l0\b", r"fusion.recurrent.\1"),
        *NAMES,
        *DOUBLY_RESIDUAL,
    ),
    unused=STATES,
    size_axes={**SIZES, "visual_dim": ("encoder.fc.weight", 1)},
    stacks=STACKS,
    fixed={"quirks": True},
    padded_positions=True,
    hint=HINT,
)
"""Weights of the released code, trained with its faults: see `zoo.shared_official_names.meshed_memory`."""
