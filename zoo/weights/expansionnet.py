"""Weights of ExpansionNet v1 and v2 as released by their authors (https://github.com/jchenghu/ExpansionNet_v2, MIT).

Shapes do not determine `n_heads`, `static_lengths`, `backbone` and `backbone_options`.
"""

from zoo.conversion import Converter

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


class _ExpansionNet(Converter):
    def name(self, official: str) -> str:
        second_norm = "cross_norm" if official.startswith("decoders") else "feed_forward_norm"
        segments = {**_SEGMENTS, "norm_2": second_norm}
        name = ".".join(segments.get(segment, segment) for segment in official.split("."))
        return name.replace("query_exp_vectors.weight", "queries").replace("bias_exp_vectors.weight", "biases")


CONVERTER = _ExpansionNet(
    what="ExpansionNet",
    unused=r"^swin_transf\.",
    where={
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
)
