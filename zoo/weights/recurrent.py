"""Weights of the LSTM captioners of https://github.com/ruotianluo/ImageCaptioning.pytorch (MIT).

Its models `show_tell`, `fc`, `newfc`, `att2in`, `att2in2`, `att2all2` and `updown`, without batch normalisation and
with one layer of logits. Torch orders an LSTM's gates input, forget, candidate, output; the zoo has the candidate last.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from zoo.captioner import Captioner
from zoo.errors import ZooError
from zoo.weights.fitting import build_fitting, sizes_of_shapes

_WHAT = "an LSTM captioner of ImageCaptioning.pytorch"
_PLACES = (
    (r"embed\.(0\.)?weight", r"embedding.\1weight"),
    (r"logit\.", "vocabulary."),
    (r"(?:img|fc)_embed\.", "image_embedding."),
    (r"att_embed\.", "region_embedding."),
    (r"ctx2att\.", "attention.key."),
    (r"core\.attention\.(?:h2att|ho_embed)\.", "attention.query."),
    (r"core\.attention\.alpha_net\.", "attention.score."),
    (r"core\.attention\.fr_linear\.0\.", "attention.sentinel."),
    (r"core\.attention\.fr_embed\.", "attention.sentinel_key."),
    (r"core\.attention\.ho_linear\.0\.", "attention.state."),
    (r"core\.attention\.att2h\.", "output."),
    (r"core\.lstm\.w2h\.", "lstm.input."),
    (r"core\.lstm\.h2h\.0\.", "lstm.recurrent."),
    (r"core\.lstm\.v2h\.", "image_gates."),
    (r"core\.lstm\.r_w2h\.", "sentinel_input."),
    (r"core\.lstm\.r_v2h\.", "sentinel_image."),
    (r"core\.lstm\.r_h2h\.", "sentinel_past."),
    (r"core\.a2[ch]\.", "attended."),
    (r"_?core\.i2h\.", "lstm.input."),
    (r"_?core\.h2h\.", "lstm.recurrent."),
)
_TORCH_LSTM = re.compile(r"core\.weight_(ih|hh)_l(\d+)")
_PARTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
_UPDOWN_LSTMS = [f"core.{lstm}.{part}" for lstm in ("att_lstm", "lang_lstm") for part in _PARTS]


def zoo_tensors(official: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The authors' tensors, or their gradients, under the zoo's names and in its layout; unknown names are kept.

    Raises:
        ZooError: one of Up-Down's two LSTMs is incomplete.
    """
    found: dict[str, Tensor] = {}
    for key, tensor in official.items():
        if match := _TORCH_LSTM.fullmatch(key):
            layer = f"upper_layers.{int(match[2]) - 1}" if int(match[2]) else "lstm"
            found[f"{layer}.{'input' if match[1] == 'ih' else 'recurrent'}.weight"] = candidate_last(tensor)
        elif key not in _UPDOWN_LSTMS:
            places = ((pattern, place) for pattern, place in _PLACES if re.match(pattern, key))
            pattern, place = next(places, ("", ""))
            found[re.sub(f"^{pattern}", place, key)] = tensor
    if any(key in official for key in _UPDOWN_LSTMS):
        found |= _updown_lstms(official)
    return found


def from_official(name: str, state_dict: Mapping[str, Tensor], **sizes: Any) -> Captioner:
    """Build a registered model with the authors' weights, in their floating-point type.

    Args:
        name: `show_tell`, `show_tell/fc`, `att2in`, `att2in/embedded`, `att2all`, `adaptive_attention` or `updown`.
        state_dict: the tensors under the authors' names.
        sizes: arguments of `create_model` that shapes do not determine, such as `max_len`.

    Raises:
        ZooError: names every tensor that is missing, unknown or of another shape.
    """
    tensors = zoo_tensors(state_dict)
    hint = "there are converters for models without batch normalisation, whose image is the mean of its regions"
    return build_fitting(name, tensors, {own: own for own in tensors}, {**read_sizes(state_dict), **sizes}, hint)


def read_sizes(official: Mapping[str, Tensor]) -> dict[str, int]:
    """The arguments of `create_model` that shapes determine; ZooError if this is not a state dict of such a model."""

    def first(*keys: str) -> str:
        return next((key for key in keys if key in official), keys[0])

    where = {
        "vocab_size": ("logit.weight", 0),
        "d_model": ("logit.weight", 1),
        "d_embedding": (first("embed.weight", "embed.0.weight"), 1),
        "visual_dim": (first("att_embed.0.weight", "img_embed.weight", "fc_embed.weight", "ctx2att.weight"), 1),
    }
    if "ctx2att.weight" in official:
        where["d_attention"] = ("ctx2att.weight", 0)
    sizes = sizes_of_shapes(official, where, _WHAT)
    layers = [int(match[2]) for key in official if (match := _TORCH_LSTM.fullmatch(key))]
    return {**sizes, "n_layers": 1 + max(layers)} if layers else sizes


def _updown_lstms(official: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Both LSTMs, each split into the weights of its input and those of past states."""
    missing = [key for key in _UPDOWN_LSTMS if key not in official]
    if missing:
        raise ZooError(f"this is not a state dict of {_WHAT}: {', '.join(missing)} missing")
    att_ih, att_hh, att_bias, att_past_bias, lang_ih, lang_hh, lang_bias, lang_past_bias = (
        candidate_last(official[key]) for key in _UPDOWN_LSTMS
    )
    width = att_hh.shape[1]
    return {
        "lstm.input.weight": att_ih[:, 2 * width :],
        "lstm.input.bias": att_bias,
        "lstm.recurrent.weight": torch.cat((att_ih[:, :width], att_hh), 1),
        "lstm.recurrent.bias": att_past_bias,
        "image_gates.weight": att_ih[:, width : 2 * width],
        "language_lstm.input.weight": lang_ih[:, :width],
        "language_lstm.input.bias": lang_bias,
        "language_lstm.recurrent.weight": torch.cat((lang_ih[:, width:], lang_hh), 1),
        "language_lstm.recurrent.bias": lang_past_bias,
    }


def candidate_last(tensor: Tensor) -> Tensor:
    """Rows in torch's order of gates to the zoo's, see `zoo.layers.lstm`."""
    let_in, keep, candidate, let_out = tensor.chunk(4)
    return torch.cat((let_in, keep, let_out, candidate))
