"""AoANet.

L. Huang, W. Wang, J. Chen, X.-Y. Wei: "Attention on Attention for Image Captioning", ICCV 2019 (arXiv:1908.06954).
Code: https://github.com/husthuaan/AoANet (MIT). Where code and paper differ, this follows the code.
"""

from __future__ import annotations

from torch import Tensor

from zoo.captioner import Captioner, DecodingState, Memory, Visual, VisualSpec
from zoo.layers.aoa import AoADropouts, AoAEncoder, AoARefiner
from zoo.layers.aoa_decoder import AoADecoder


class AoACaptioner(Captioner):
    """What AoANet and its descendants share: refined regions, and an LSTM with attention on attention."""

    encoder: AoAEncoder
    decoder: AoADecoder

    def encode(self, visual: Visual) -> Memory:
        """See `Captioner.encode`."""
        memory: Memory = self.encoder(visual)
        return memory

    def decode(self, memory: Memory, tokens: Tensor) -> Tensor:
        """See `Captioner.decode`."""
        return self.decoder.decode(memory, tokens)

    def start(self, memory: Memory) -> DecodingState:
        """See `Captioner.start`."""
        return self.decoder.start(memory)

    def step(self, tokens: Tensor, state: DecodingState) -> tuple[Tensor, DecodingState]:
        """See `Captioner.step`."""
        return self.decoder.step(tokens, state)


class AoANet(AoACaptioner):
    """Regions refined by attention on attention, and an LSTM that looks at them in the same way.

    Args:
        vocab_size, visual_dim, d_model, n_heads, n_encoder_layers: sizes.
        d_word: of the word embeddings; d_model if not given.
        d_ff, n_decoder_layers: not used: there is no feed-forward, and one LSTM.
        dropout: on embedded regions and words, and in the decoder.
        attention_dropout, residual_dropout, gate_dropout: in the refiner; the first one in the decoder too.
        max_len: longest caption; no parameter depends on it.
        refiner: without it, the decoder sees the embedded regions as they are.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        visual_dim: int,
        d_model: int = 1024,
        d_word: int | None = None,
        d_ff: int = 2048,  # noqa: ARG002
        n_heads: int = 8,
        n_encoder_layers: int = 6,
        n_decoder_layers: int = 1,  # noqa: ARG002
        dropout: float = 0.5,
        attention_dropout: float = 0.1,
        residual_dropout: float = 0.1,
        gate_dropout: float = 0.3,
        max_len: int = 74,
        refiner: bool = True,
    ) -> None:
        super().__init__()
        self.visual = VisualSpec("regions", visual_dim)
        self.vocab_size = vocab_size
        self.max_len = max_len
        dropouts = AoADropouts(attention_dropout, residual_dropout, gate_dropout)
        layers = AoARefiner(d_model, n_heads, n_encoder_layers, dropouts) if refiner else None
        self.encoder = AoAEncoder(visual_dim, d_model, dropout, layers)
        self.decoder = AoADecoder(
            vocab_size,
            d_model,
            d_model if d_word is None else d_word,
            n_heads,
            max_len,
            n_memories=1,
            values_first=True,
            dropout=dropout,
            attention_dropout=attention_dropout,
        )
