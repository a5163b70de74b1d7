"""Weights of ExpansionNet v1 and v2 as released by their authors (https://github.com/jchenghu/ExpansionNet_v2, MIT)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from zoo.captioner import Captioner
from zoo.errors import ZooError
from zoo.registry import create_model

_BACKBONE = "swin_transf."

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


def zoo_name(official: str) -> str:
    """The zoo's name of a parameter, given the authors' name of it in a whole model."""
    second_norm = "cross_norm" if official.startswith("decoders") else "feed_forward_norm"
    segments = {**_SEGMENTS, "norm_2": second_norm}
    name = ".".join(segments.get(segment, segment) for segment in official.split("."))
    return name.replace("query_exp_vectors.weight", "queries").replace("bias_exp_vectors.weight", "biases")


def from_official(name: str, state_dict: Mapping[str, Tensor], **sizes: Any) -> Captioner:
    """Build a registered ExpansionNet with the authors' weights, in their floating-point type.

    Args:
        name: a model of static encoder and dynamic decoder, such as `expansionnet_v2`.
        state_dict: a checkpoint's `model_state_dict`. The backbone's tensors (`swin_transf.*`) are left aside.
        sizes: arguments of `create_model` that shapes do not tell: `n_heads` and `static_lengths`, where they differ
            from the preset's. What shapes tell is read off them.

    Raises:
        ZooError: names every tensor that is missing, unknown or of another shape.
    """
    official = {key: tensor for key, tensor in state_dict.items() if not key.startswith(_BACKBONE)}
    model = create_model(name, **{**_read_sizes(official), **sizes})
    wanted = model.state_dict()
    given = {zoo_name(key): key for key in official}
    problems = [f"{key}: unknown to {name}" for key in sorted(given.values()) if zoo_name(key) not in wanted]
    for own, parameter in wanted.items():
        if own not in given:
            problems.append(f"{own}: not in the state dict")
        elif official[given[own]].shape != parameter.shape:
            shape = tuple(official[given[own]].shape)
            problems.append(f"{given[own]}: shape {shape}, but {name} has {tuple(parameter.shape)}")
    if problems:
        raise ZooError(
            f"the state dict does not fit {name}:\n  " + "\n  ".join(problems),
            "n_heads=... and static_lengths=(...) must be those of the training",
        )
    model.to(official["vocab_linear.weight"].dtype)
    model.load_state_dict({own: official[key] for own, key in given.items()})
    return model


def _read_sizes(official: Mapping[str, Tensor]) -> dict[str, int]:
    where = {
        "vocab_size": ("vocab_linear.weight", 0),
        "visual_dim": ("input_linear.weight", 1),
        "d_model": ("input_linear.weight", 0),
        "d_ff": ("decoders.0.ff.linear_1.weight", 0),
        "max_len": ("pos_encoder.weight", 0),
        "dynamic_length": ("decoders.0.dyn_exp.query_exp_vectors.weight", 0),
    }
    missing = sorted({key for key, _ in where.values()} - set(official))
    if missing:
        raise ZooError(
            f"this is no state dict of ExpansionNet: {', '.join(missing)} missing",
            "pass the checkpoint's 'model_state_dict'",
        )
    sizes = {size: official[key].shape[axis] for size, (key, axis) in where.items()}
    for size, stack in (("n_encoder_layers", "encoders"), ("n_decoder_layers", "decoders")):
        sizes[size] = len({key.split(".")[1] for key in official if key.startswith(f"{stack}.")})
    return sizes
