"""A transformer of attention-on-attention blocks: "Base w/ AoA" in Table 2 of the ExpansionNet v1 paper.

J. C. Hu, R. Cavicchioli, A. Capotondi: "ExpansionNet: exploring the sequence length bottleneck in the Transformer for
Image Captioning", arXiv:2207.03327, after L. Huang et al.: "Attention on Attention for Image Captioning", ICCV 2019.
No code of this row was released; the paper states three layers, no feed-forward, and self-attention instead of an LSTM.
Here the blocks are AoANet's; word embeddings and initialisation are ExpansionNet's.
"""

from collections.abc import Sequence

from torch import nn

from zoo.captioner import Memory, Visual, VisualSpec
from zoo.layers.annotated_norm import AnnotatedNorm
from zoo.layers.aoa import AoADropouts, AoARefiner, AttentionOnAttention
from zoo.layers.attention import MultiHeadAttention, SelfAttention
from zoo.layers.embedding import TokenEmbedding
from zoo.layers.residual import DecoderLayer, StackOutput, attention_mixers
from zoo.stacked import StackedCaptioner


class AoATransformer(StackedCaptioner):
    """AoANet's refiner as the encoder, and a decoder whose self- and cross-attention are AoA blocks too.

    Args:
        dropout: on embedded regions and words, and on every branch.
        attention_dropout, gate_dropout: on the attention's probabilities, and on the input of attention on attention.
        max_len: rows of the position table.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        visual_dim: int,
        d_model: int = 512,
        n_heads: int = 8,
        n_encoder_layers: int = 3,
        n_decoder_layers: int = 3,
        dropout: float = 0.3,
        attention_dropout: float = 0.1,
        gate_dropout: float = 0.3,
        max_len: int = 74,
    ) -> None:
        super().__init__(VisualSpec("regions", visual_dim), vocab_size, max_len)
        self.input = nn.Linear(visual_dim, d_model)
        self.input_dropout = nn.Dropout(dropout)
        dropouts = AoADropouts(attention_dropout, dropout, gate_dropout)
        self.refiner = AoARefiner(d_model, n_heads, n_encoder_layers, dropouts)
        self.embedding = TokenEmbedding(vocab_size, d_model, max_len, dropout)
        self.decoder_layers = nn.ModuleList()
        for _ in range(n_decoder_layers):
            gates = [AttentionOnAttention(d_model, gate_dropout) for _ in range(2)]
            mixer = SelfAttention(d_model, n_heads, causal=True, dropout=attention_dropout, gate=gates[0])
            cross_attention = MultiHeadAttention(d_model, n_heads, dropout=attention_dropout, gate=gates[1])
            layer = DecoderLayer(mixer, cross_attention, d_model, None, dropout, norm=AnnotatedNorm)
            self.decoder_layers.append(layer)
        self.decoder_output = StackOutput(d_model, n_decoder_layers, dropout, reduce=False, norm=AnnotatedNorm)
        self.vocabulary = nn.Linear(d_model, vocab_size)
        self.init_weights()

    def region_attention_modules(self) -> Sequence[nn.Module]:
        return attention_mixers(self.refiner.layers)

    def encode(self, visual: Visual) -> Memory:
        features, mask = visual.valid_features(self.input.weight.dtype)
        return Memory(self.refiner(self.input_dropout(self.input(features).relu()), mask), mask)
