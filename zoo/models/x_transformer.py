"""X-Transformer: X-linear attention between regions, words and both, in the place of scaled dot products.

Y. Pan, T. Yao, Y. Li, T. Mei: "X-Linear Attention Networks for Image Captioning", CVPR 2020 (arXiv:2003.14080). The
paper has X-LAN; this is the second model of its code, https://github.com/JDAI-CV/image-captioning (no licence stated),
which it follows numerically. There padding words are hidden from means and attention; here they are at the end, where
no earlier position sees them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.captioner import Captioner, DecodingState, Memory, Visual, VisualSpec
from zoo.layers.cache import append, for_layers, of_layer, stack_caches, widen
from zoo.layers.embedding import FixedPositions, TokenEmbedding, sinusoids
from zoo.layers.residual import ResidualLayer
from zoo.layers.x_linear import ALPHA, Fusion, Visibility, XLinearAttention, XLinearDropouts, XLinearEncoder, visibility
from zoo.shared_official_names.x_linear import ATTENTION, XLinearConverter, x_linear_sizes


class XLinearDecoderLayer(ResidualLayer):
    """u = x + attention(g; words), g <- norm(u + attention(norm(u); regions)), then x <- feed_forward(fusion(x, g)).

    Attentions are followed by dropout. The last layer of a stack leaves x as it is, since nothing reads it.
    """

    def __init__(
        self, d_model: int, n_heads: int, d_attention: int | None, d_ff: int, dropouts: XLinearDropouts, *, last: bool
    ) -> None:
        super().__init__(dropouts.branch, post_norm=True)
        self.word_attention = XLinearAttention(d_model, n_heads, d_attention, dropouts.attention)
        self.cross_attention = XLinearAttention(d_model, n_heads, d_attention, dropouts.attention)
        self.cross_norm = nn.LayerNorm(d_model)
        self.query_norm = nn.LayerNorm(d_model)
        self.fusion = None if last else Fusion(d_model, dropouts.fusion)
        self.build_feed_forward(d_model, None if last else d_ff, nn.LayerNorm)

    def forward(
        self,
        query: Tensor,
        x: Tensor,
        words: tuple[Tensor, Tensor],
        visible_words: Visibility | None,
        regions: tuple[Tensor, Tensor],
        visible_regions: Visibility,
    ) -> tuple[Tensor, Tensor]:
        """The next queries g and words x.

        Args:
            query, x: (B * n, T, D).
            words: keys and values of all words so far, x included, from `word_attention.project`.
            visible_words: the words that each position may attend to; None for all.
            regions: keys and values of B images, from `cross_attention.project`.
            visible_regions: the valid regions of each image.
        """
        u = x + self.dropout(self.word_attention(query, *words, visible_words))
        attended = self.cross_attention(self.cross_norm(u), *regions, visible_regions)
        query = self.query_norm(u + self.dropout(attended))
        if self.fusion is not None:
            x = self.feed_forward_branch(self.fusion(x, self.fusion.project(query)))
        return query, x


class XTransformer(Captioner):
    """Words x with a query g each: in every layer, g attends to the words, then to the regions, and x is fused with g.

    g_0 = b_1 * b_2, where b_1 is from the image's global vector and b_2 from the mean of the words so far;
    p = softmax(W dropout(norm(GLU(W [g_0; ..; g_N])))).

    Args:
        d_attention: width of the bilinear products of a head; half of the head's if not given.
        dropout: on embedded regions, on g_0, after each attention, in every feed-forward, before the vocabulary.
        attention_dropout: on the bilinear products.
        fusion_dropout: where regions and words read a global vector.
        word_dropout: on embedded words.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        visual_dim: int,
        d_model: int = 768,
        d_ff: int = 3072,
        n_heads: int = 8,
        n_encoder_layers: int = 6,
        n_decoder_layers: int = 6,
        d_attention: int | None = None,
        dropout: float = 0.5,
        attention_dropout: float = 0.1,
        fusion_dropout: float = 0.3,
        word_dropout: float = 0.1,
        max_len: int = 74,
    ) -> None:
        super().__init__()
        self.visual = VisualSpec("regions", visual_dim)
        self.vocab_size = vocab_size
        self.max_len = max_len
        dropouts = XLinearDropouts(dropout, attention_dropout, fusion_dropout)
        self.region_embedding = nn.Sequential(*_celu_norm(visual_dim, d_model), nn.Dropout(dropout))
        self.encoder = XLinearEncoder(d_model, n_heads, n_encoder_layers, dropouts, d_attention=d_attention, d_ff=d_ff)
        positions = FixedPositions(sinusoids(max_len, d_model))
        self.embedding = TokenEmbedding(vocab_size, d_model, max_len, None, positions=positions)
        self.embedding_norm = nn.Sequential(nn.LayerNorm(d_model), nn.Dropout(word_dropout))
        self.image_query = nn.Sequential(*_celu_norm(d_model, d_model))
        self.words_query = nn.Sequential(*_celu_norm(d_model, d_model))
        self.query_dropout = nn.Dropout(dropout)
        self.decoder_layers = nn.ModuleList(
            XLinearDecoderLayer(d_model, n_heads, d_attention, d_ff, dropouts, last=index == n_decoder_layers - 1)
            for index in range(n_decoder_layers)
        )
        self.decoder_output = nn.Linear((n_decoder_layers + 1) * d_model, 2 * d_model)
        self.matrices_in = {"decoder_output": 2}
        self.decoder_norm = nn.LayerNorm(d_model)
        self.output_dropout = nn.Dropout(dropout)
        self.vocabulary = nn.Linear(d_model, vocab_size)

    def encode(self, visual: Visual) -> Memory:
        """See `Captioner.encode`; `extra` has the image's part b_1 of g_0, (B, D)."""
        features, mask = visual.valid_features(self.vocabulary.weight.dtype)
        regions, vector = self.encoder(self.region_embedding(features), mask, visibility(mask, features.dtype))
        return Memory(regions, mask, {"query": self.image_query(vector)})

    def decode(self, memory: Memory, tokens: Tensor) -> Tensor:
        x = self.embedding_norm(self.embedding(tokens))
        length = tokens.shape[1]
        counts = torch.arange(1, length + 1, device=x.device)
        queries = [self._first_query(memory.extra["query"], x.cumsum(1) / counts[:, None])]
        visible_regions = visibility(memory.mask, x.dtype)
        visible_words = visibility(counts.new_ones(1, length, length, dtype=torch.bool).tril(), x.dtype)
        for layer in self._layers():
            words = layer.word_attention.project(x)
            regions = layer.cross_attention.project(memory.features)
            query, x = layer(queries[-1], x, words, visible_words, regions, visible_regions)
            queries.append(query)
        return self._predict(queries)

    def start(self, memory: Memory) -> DecodingState:
        attention_bias, share = visibility(memory.mask, memory.features.dtype)
        images = {"query": memory.extra["query"], "attention_bias": attention_bias, "share": share}
        rows = {"sum": torch.zeros_like(memory.extra["query"])}
        for index, layer in enumerate(self._layers()):
            keys, values = layer.cross_attention.project(memory.features)
            images[f"{index}.keys"], images[f"{index}.values"] = keys, values
        # Keys and values in one tensor, which is concatenated and reordered in half the time of two.
        empty = keys.new_zeros(keys.shape[0], 2 * keys.shape[1], 0, keys.shape[3])
        rows |= for_layers({"keys_values": empty}, len(self.decoder_layers))
        position = torch.zeros(1, 1, dtype=torch.long, device=memory.features.device)
        return DecodingState(images, rows, {"position": position})

    def step(self, tokens: Tensor, state: DecodingState) -> tuple[Tensor, DecodingState]:
        images = state.images
        position = state.shared["position"]
        x = self.embedding_norm(self.embedding(tokens[:, None], position))
        total = state.rows["sum"] + x[:, 0]
        new_caches = []
        queries = [self._first_query(images["query"], total[:, None] / (position + 1))]
        caches = {"keys_values": widen(state.rows["keys_values"])}
        visible_regions = (images["attention_bias"], images["share"])
        for index, layer in enumerate(self._layers()):
            new = torch.cat(layer.word_attention.project(x), 1)
            keys_values = append(of_layer(caches, index)["keys_values"], new)
            new_caches.append({"keys_values": keys_values})
            keys, values = keys_values.chunk(2, 1)
            regions = images[f"{index}.keys"], images[f"{index}.values"]
            query, x = layer(queries[-1], x, (keys, values), None, regions, visible_regions)
            queries.append(query)
        rows = {"sum": total, **stack_caches(caches, new_caches)}
        return self._predict(queries)[:, 0], replace(state, rows=rows, shared={"position": position + 1})

    def cross_attention_modules(self) -> Sequence[nn.Module]:
        return [layer.cross_attention for layer in self._layers()]

    def _first_query(self, image: Tensor, mean: Tensor) -> Tensor:
        """g_0 (B * n, T, D), from the image's part (B, D) and the mean of the words so far (B * n, T, D)."""
        words: Tensor = self.words_query(mean)
        product: Tensor = self.query_dropout(words.view(image.shape[0], -1, image.shape[1]) * image[:, None])
        return product.view(mean.shape)

    def _predict(self, queries: Sequence[Tensor]) -> Tensor:
        gated = F.glu(self.decoder_output(torch.cat(tuple(queries), -1)), -1)
        logits: Tensor = self.vocabulary(self.output_dropout(self.decoder_norm(gated)))
        return logits

    def _layers(self) -> Iterable[XLinearDecoderLayer]:
        return self.decoder_layers  # type: ignore[return-value]  # ModuleList is not generic


def _celu_norm(d_input: int, d_model: int) -> tuple[nn.Module, ...]:
    return nn.Linear(d_input, d_model), nn.CELU(ALPHA), nn.LayerNorm(d_model)


CONVERTER = XLinearConverter(
    source="X-Transformer",
    renames=(
        *ATTENTION,
        (r"^att_embed\b", "region_embedding"),
        (r"^encoder\.proj_norm\.0\b", "encoder.output"),
        (r"^encoder\.proj_norm\.1\b", "encoder.norm"),
        (r"\bencoder_attn\b", "attention"),
        (r"\bword_attn\b", "word_attention"),
        (r"\bcross_att\b", "cross_attention"),
        (r"\bbifeat_emb\.0\b", "fusion.linear"),
        (r"^encoder\.layers\.(\d+)\.layer_norm\b", r"encoder.layers.\1.fusion.norm"),
        (r"\blayer_norm_x\b", "fusion.norm"),
        (r"\blayer_norm_gx\b", "query_norm"),
        (r"\blayer_norm_cross\b", "cross_norm"),
        (r"\bff_layer\.layer_norms\b", "feed_forward_norm"),
        (r"\bff_layer\.fc1\b", "feed_forward.inner"),
        (r"\bff_layer\.fc2\b", "feed_forward.outer"),
        (r"^decoder\.layers\b", "decoder_layers"),
        (r"^decoder\.embed_tokens\b", "embedding.words"),
        (r"^decoder\.layer_norm_word\b", "embedding_norm.0"),
        (r"^decoder\.wbil1\b", "image_query"),
        (r"^decoder\.wbil2\b", "words_query"),
        (r"^decoder\.proj_norm\.0\b", "decoder_output"),
        (r"^decoder\.proj_norm\.2\b", "decoder_norm"),
        (r"^decoder\.generator\b", "vocabulary"),
    ),
    unused=r"^decoder\.embed_positions\.pe$",
    size_axes={**x_linear_sizes("encoder", "decoder.generator"), "d_ff": ("encoder.layers.0.ff_layer.fc1.weight", 0)},
    stacks={"n_encoder_layers": "encoder.layers", "n_decoder_layers": "decoder.layers"},
    shared_number=("decoder.embed_tokens.weight", "decoder.generator"),
)
"""Weights of the authors' code. Shapes determine everything but `max_len`: see `zoo.shared_official_names.x_linear`."""
