"""ExpansionNet v1 and v2, and the base transformer of their ablations.

J. C. Hu, R. Cavicchioli, A. Capotondi:
"ExpansionNet v2: Block Static Expansion in fast end to end training for Image Captioning", arXiv:2208.06551;
later version "Exploiting Multiple Sequence Lengths in Fast End to End Training for Image Captioning", Big Data 2023;
"ExpansionNet: exploring the sequence length bottleneck in the Transformer for Image Captioning", arXiv:2207.03327.
Code: https://github.com/jchenghu/ExpansionNet_v2 (MIT). Where code and papers differ, this follows the code.
"""

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import nn

from zoo.captioner import Memory, Visual, VisualSpec
from zoo.converter import Converter
from zoo.errors import check_at_least_1, check_choice
from zoo.layers.attention import MultiHeadAttention, SelfAttention
from zoo.layers.embedding import TokenEmbedding
from zoo.layers.expansion import DynamicExpansion, StaticExpansion
from zoo.layers.residual import DecoderLayer, EncoderLayer, StackOutput
from zoo.precision import full_precision
from zoo.stacked import StackedCaptioner

EncoderMixer = Literal["self_attention", "static", "dynamic", "none"]
DecoderMixer = Literal["self_attention", "dynamic"]


class ExpansionNet(StackedCaptioner):
    """Pre-norm encoder and decoder, each with a choice of token mixer.

    Args:
        dropout: at every site of both stacks.
        max_len: rows of the position table.
        encoder: mixer of the visual tokens; "none" ignores the image and decodes from one learned vector.
        decoder: mixer of the words.
        static_lengths: the groups G of static expansion.
        dynamic_length: N_E of dynamic expansion.
        encoder_reduce, decoder_reduce: whether to fuse the outputs of all layers of a stack; by default if it uses
            expansion.
    """

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
        dropout: float = 0.3,
        max_len: int = 74,
        encoder: EncoderMixer = "static",
        decoder: DecoderMixer = "dynamic",
        static_lengths: Sequence[int] = (32, 64, 128, 256, 512),
        dynamic_length: int = 16,
        encoder_reduce: bool | None = None,
        decoder_reduce: bool | None = None,
        visual_kind: Literal["grid", "regions"] = "grid",
    ) -> None:
        visual = VisualSpec("none", 0) if encoder == "none" else VisualSpec(visual_kind, visual_dim)
        super().__init__(visual, vocab_size, max_len)
        check_choice("encoder", encoder, get_args(EncoderMixer))
        check_choice("decoder", decoder, get_args(DecoderMixer))
        check_choice("visual_kind", visual_kind, ("grid", "regions"))
        check_at_least_1(dynamic_length=dynamic_length, static_lengths=min(static_lengths, default=0))
        if encoder == "none":
            self.memory = nn.Parameter(torch.empty(1, d_model))
        else:
            self.input = nn.Linear(visual_dim, d_model)
            self.input_dropout = nn.Dropout(dropout)
            self.encoder_layers = nn.ModuleList()
            for _ in range(n_encoder_layers):
                mixer: SelfAttention | StaticExpansion | DynamicExpansion
                if encoder == "static":
                    mixer = StaticExpansion(d_model, static_lengths, dropout)
                elif encoder == "dynamic":
                    mixer = DynamicExpansion(d_model, dynamic_length, dropout, causal=False)
                else:
                    mixer = SelfAttention(d_model, n_heads, causal=False)
                self.encoder_layers.append(EncoderLayer(mixer, d_model, d_ff, dropout))
            reduce = encoder != "self_attention" if encoder_reduce is None else encoder_reduce
            self.encoder_output = StackOutput(d_model, n_encoder_layers, dropout, reduce)

        self.embedding = TokenEmbedding(vocab_size, d_model, max_len, dropout)
        self.decoder_layers = nn.ModuleList(
            DecoderLayer(
                DynamicExpansion(d_model, dynamic_length, dropout, causal=True)
                if decoder == "dynamic"
                else SelfAttention(d_model, n_heads, causal=True),
                MultiHeadAttention(d_model, n_heads),
                d_model,
                d_ff,
                dropout,
            )
            for _ in range(n_decoder_layers)
        )
        reduce = decoder == "dynamic" if decoder_reduce is None else decoder_reduce
        self.decoder_output = StackOutput(d_model, n_decoder_layers, dropout, reduce)
        self.vocabulary = nn.Linear(d_model, vocab_size)
        self.init_weights()

    def encode(self, visual: Visual) -> Memory:
        if self.visual.kind == "none":
            features = self.memory.expand(visual.batch_size, 1, -1)
            return Memory(features, torch.ones(features.shape[:2], dtype=torch.bool, device=features.device))
        x, mask = visual.valid_features(self.input.weight.dtype)
        x = full_precision(self.input_dropout(self.input(x)))  # so that residual sums are, as in the decoder
        outputs = []
        for layer in self.encoder_layers:
            x = layer(x, visual.mask)
            outputs.append(x)
        return Memory(self.encoder_output(outputs), mask)


_SEGMENTS = {
    "input_linear": "input",
    "encoders": "encoder_layers",
    "decoders": "decoder_layers",
    "stc_exp": "mixer",
    "dyn_exp": "mixer",
    "cond_embed": "condition",
    "key_embed": "key",
    "key_linear": "key",
    "class_a_embed": "streams.value_a",
    "class_b_embed": "streams.value_b",
    "selector_embed": "streams.selector",
    "mha": "cross_attention",
    "Wq": "query",
    "Wk": "key",
    "Wv": "value",
    "out_linear": "output",
    "ff": "feed_forward",
    "linear_1": "inner",
    "linear_2": "outer",
    "norm_1": "mixer_norm",
    "norm_3": "feed_forward_norm",
    "out_embedder": "embedding",
    "embed": "words",
    "pos_encoder": "embedding.positions",
    "enc_reduce_group": "encoder_output.reduce",
    "enc_reduce_norm": "encoder_output.norm",
    "dec_reduce_group": "decoder_output.reduce",
    "dec_reduce_norm": "decoder_output.norm",
    "vocab_linear": "vocabulary",
}


class _ExpansionNetConverter(Converter):
    def name(self, official: str) -> str:
        second_norm = "cross_norm" if official.startswith("decoders") else "feed_forward_norm"
        segments = {**_SEGMENTS, "norm_2": second_norm}
        name = ".".join(segments.get(segment, segment) for segment in official.split("."))
        return name.replace("query_exp_vectors.weight", "queries").replace("bias_exp_vectors.weight", "biases")


CONVERTER = _ExpansionNetConverter(
    source="ExpansionNet",
    unused=r"^swin_transf\.",
    size_axes={
        "vocab_size": ("vocab_linear.weight", 0),
        "visual_dim": ("input_linear.weight", 1),
        "d_model": ("input_linear.weight", 0),
        "d_ff": ("decoders.0.ff.linear_1.weight", 0),
        "max_len": ("pos_encoder.weight", 0),
        "dynamic_length": ("decoders.0.dyn_exp.query_exp_vectors.weight", 0),
    },
    stacks={"n_encoder_layers": "encoders", "n_decoder_layers": "decoders"},
    backbone="swin_transf.",
    hint="n_heads=..., static_lengths=(...) and the backbone's options must be those of the training",
    families=("expansionnet_v1", "expansionnet_v2"),
)
"""Weights of https://github.com/jchenghu/ExpansionNet_v2 (MIT), and of version 1.

Shapes do not determine `n_heads`, `static_lengths`, `backbone` and `backbone_options`.
"""
