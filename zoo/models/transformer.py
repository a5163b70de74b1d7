"""The pre-norm transformer on region features, without positions of regions; and with geometric attention.

A. Vaswani et al.: "Attention Is All You Need", NeurIPS 2017; P. Sharma et al.: "Conceptual Captions", ACL 2018, applied
it to captioning. Conventions: https://github.com/ruotianluo/ImageCaptioning.pytorch (MIT), which also masks
padding words; here they are at the end and hidden by the causal mask.

S. Herdade, A. Kappeler, K. Boakye, J. Soares: "Image Captioning: Transforming Objects into Words", NeurIPS 2019
(arXiv:1906.05963). Code: https://github.com/yahoo/object_relation_transformer (MIT). This follows the paper where the
code differs: it adds 1 to the width and height of boxes already in [0, 1], and inverts the ratio of sizes. Weights
trained with it assume that geometry, so there is no converter.
"""

from torch import Tensor, nn

from zoo.captioner import Memory, Visual, VisualSpec
from zoo.converter import Converter
from zoo.errors import ZooError
from zoo.layers.annotated_norm import AnnotatedNorm
from zoo.layers.attention import MultiHeadAttention, SelfAttention
from zoo.layers.embedding import FixedPositions, TokenEmbedding, sinusoids
from zoo.layers.geometry import GeometricAttention, fill_padded_boxes, pair_geometry
from zoo.layers.residual import DecoderLayer, EncoderLayer, StackOutput
from zoo.stacked import StackedCaptioner


class Transformer(StackedCaptioner):
    """Regions through an encoder of self-attention, words through a decoder of causal and cross-attention.

    Args:
        dropout: on the probabilities of every attention, in every feed-forward, on every branch and embedded word.
        region_dropout: on the embedded regions.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        visual_dim: int,
        d_model: int = 512,
        d_ff: int = 2048,
        n_heads: int = 8,
        n_encoder_layers: int = 6,
        n_decoder_layers: int = 6,
        dropout: float = 0.1,
        region_dropout: float = 0.5,
        max_len: int = 74,
    ) -> None:
        super().__init__(VisualSpec("regions", visual_dim), vocab_size, max_len)
        self.input = nn.Linear(visual_dim, d_model)
        self.input_dropout = nn.Dropout(region_dropout)
        self.encoder_layers = nn.ModuleList(
            EncoderLayer(self.region_mixer(d_model, n_heads, dropout), d_model, d_ff, dropout, norm=AnnotatedNorm)
            for _ in range(n_encoder_layers)
        )
        self.encoder_output = StackOutput(d_model, n_encoder_layers, dropout, reduce=False, norm=AnnotatedNorm)
        positions = FixedPositions(sinusoids(max_len, d_model))
        self.embedding = TokenEmbedding(vocab_size, d_model, max_len, dropout, positions=positions, drop_sum=True)
        self.decoder_layers = nn.ModuleList(
            DecoderLayer(
                SelfAttention(d_model, n_heads, causal=True, dropout=dropout),
                MultiHeadAttention(d_model, n_heads, dropout=dropout),
                d_model,
                d_ff,
                dropout,
                norm=AnnotatedNorm,
            )
            for _ in range(n_decoder_layers)
        )
        self.decoder_output = StackOutput(d_model, n_decoder_layers, dropout, reduce=False, norm=AnnotatedNorm)
        self.vocabulary = nn.Linear(d_model, vocab_size)
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1 and not name.startswith("input"):
                nn.init.xavier_uniform_(parameter)

    def region_mixer(self, d_model: int, n_heads: int, dropout: float) -> nn.Module:
        """The mixer of an encoder layer."""
        return SelfAttention(d_model, n_heads, causal=False, dropout=dropout)

    def relations(self, visual: Visual, mask: Tensor) -> tuple[Tensor, ...]:  # noqa: ARG002  # for subclasses
        """Further inputs of the encoder's mixers besides features and mask, computed once for all layers."""
        return ()

    def encode(self, visual: Visual) -> Memory:
        features, mask = visual.valid_features(self.input.weight.dtype)
        relations = self.relations(visual, mask)
        x = self.input_dropout(self.input(features).relu())
        for layer in self.encoder_layers:
            x = layer(x, mask, *relations)
        return Memory(self.encoder_output([x]), mask)


class ObjectRelationTransformer(Transformer):
    """`Transformer` with geometric attention instead of self-attention in the encoder; takes its arguments."""

    def region_mixer(self, d_model: int, n_heads: int, dropout: float) -> nn.Module:
        return GeometricAttention(d_model, n_heads, dropout=dropout)

    def relations(self, visual: Visual, mask: Tensor) -> tuple[Tensor, ...]:
        """See `Transformer.relations`: the geometry of all pairs of boxes."""
        if visual.boxes is None:
            raise ZooError("this model needs the boxes of the regions, but the input has none")
        boxes = fill_padded_boxes(visual.boxes, mask)
        return (pair_geometry(boxes, boxes),)


CONVERTER = Converter(
    source="ImageCaptioning.pytorch's transformer",
    renames=(
        (r"^att_embed\.0\b", "input"),
        (r"^model\.(en|de)coder\.layers\b", r"\1coder_layers"),
        (r"^model\.(en|de)coder\.norm\b", r"\1coder_output.norm"),
        (r"^model\.tgt_embed\.0\.lut\b", "embedding.words"),
        (r"^model\.generator\.proj\b", "vocabulary"),
        (r"\bself_attn\b", "mixer"),
        (r"\bsrc_attn\b", "cross_attention"),
        (r"\blinears\.0\b", "query"),
        (r"\blinears\.1\b", "key"),
        (r"\blinears\.2\b", "value"),
        (r"\blinears\.3\b", "output"),
        (r"\bw_1\b", "inner"),
        (r"\bw_2\b", "outer"),
        (r"\bsublayer\.0\.norm\b", "mixer_norm"),
        (r"^(decoder_layers\.\d+)\.sublayer\.1\.norm\b", r"\1.cross_norm"),
        (r"\bsublayer\.[12]\.norm\b", "feed_forward_norm"),
        (r"\ba_2\b", "gain"),
        (r"\bb_2\b", "shift"),
    ),
    unused=r"^model\.tgt_embed\.1\.pe$",
    size_axes={
        "vocab_size": ("model.generator.proj.weight", 0),
        "visual_dim": ("att_embed.0.weight", 1),
        "d_model": ("model.generator.proj.weight", 1),
        "d_ff": ("model.encoder.layers.0.feed_forward.w_1.weight", 0),
    },
    stacks={"n_encoder_layers": "model.encoder.layers", "n_decoder_layers": "model.decoder.layers"},
    hint="n_heads=... must be that of the training, and the model without batch normalisation",
    families=("transformer",),
)
"""Weights of ImageCaptioning.pytorch's transformer without batch normalisation. Shapes do not determine `n_heads` and
`max_len`.
"""
