"""Weights of SGAE's released `lstm_mem4` (https://github.com/yangxuntu/SGAE, no licence stated).

The dictionary lies in a file of its own there, and is passed as `memory_cell`. Number 0 is begin, end and padding.
Parts for sentence graphs (`ssg_*`) are left out unless `sentences` is true, and those of the image graph unless `graph`
is "given". Two parts that no output of theirs depends on (`ssg_obj_attr_fc`, `ssg_mem`) are always left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from zoo.captioner import Captioner
from zoo.registry import model_card
from zoo.weights.fitting import build_fitting, sizes_of_shapes
from zoo.weights.recurrent import candidate_last

_PARTS = (
    (r"^embed\.", "embedding."),
    (r"^att_embed\.", "region_embedding."),
    (r"^fc_embed\.", "image_embedding."),
    (r"^embed2vis\.", "graph.word."),
    (r"^rela_sbj_rela_fc\.", "graph.to_subject."),
    (r"^rela_obj_rela_fc\.", "graph.to_object."),
    (r"^rela_rela_fc\.", "graph.to_relation."),
    (r"^rela_attr_fc\.", "graph.to_attribute."),
    (r"^img2sg\.fc1\.0\.", "to_dictionary.0."),
    (r"^img2sg\.fc2\.0\.", "to_dictionary.3."),
    (r"^img2sg\.fc3\.", "to_dictionary.6."),
    (r"^memory_cell$", "dictionary"),
    (r"^rela_ctx2att\.", "node_attention.key."),
    (r"^rela_core\.attention_rela\.h2att\.", "node_attention.query."),
    (r"^rela_core\.attention_rela\.alpha_net\.", "node_attention.score."),
    (r"^rela_core\.attention_mem\.h2att\.", "entry_attention.query."),
    (r"^rela_core\.attention_mem\.alpha_net\.", "entry_attention.score."),
    (r"^logit\.", "vocabulary."),
    (r"^ssg_obj_obj_fc\.", "sentences.graph.object."),
    (r"^ssg_sbj_rela_fc\.", "sentences.graph.to_subject."),
    (r"^ssg_obj_rela_fc\.", "sentences.graph.to_object."),
    (r"^ssg_rela_fc\.", "sentences.graph.to_relation."),
    (r"^ssg_attr_fc\.", "sentences.graph.to_attribute."),
    (r"^ssg_ctx2att\.", "sentences.attention.key."),
    (r"^ssg_core\.attention\.h2att\.", "sentences.attention.query."),
    (r"^ssg_core\.attention\.alpha_net\.", "sentences.attention.score."),
)
_PIECES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
_LSTMS = [f"rela_core.{lstm}.{piece}" for lstm in ("att_lstm", "lang_lstm") for piece in _PIECES]
_UNUSED = ("ssg_obj_attr_fc.", "ssg_mem.")


def zoo_name(official: str) -> str:
    """The zoo's name of a parameter, given the authors' name of it; those of both LSTMs have other shapes."""
    for pattern, own in _PARTS:
        official = re.sub(pattern, own, official)
    return official


def zoo_tensors(official: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The authors' tensors, or their gradients, under the zoo's names; unknown names are kept.

    Only decoders whose LSTMs are there are in what is found.
    """
    found = {
        zoo_name(key): tensor for key, tensor in official.items() if "_lstm." not in key and not key.startswith(_UNUSED)
    }
    for core, place in (("rela_core", ""), ("ssg_core", "sentences.")):
        if f"{core}.att_lstm.weight_ih" in official:
            found |= {place + name: tensor for name, tensor in _lstms(official, core).items()}
    return found


def _lstms(official: Mapping[str, Tensor], core: str) -> dict[str, Tensor]:
    """Both LSTMs of a decoder; their attention LSTM reads [language state; image; word]."""
    first_in, first_past, first_bias, first_past_bias, second_in, second_past, second_bias, second_past_bias = (
        candidate_last(official[f"{core}.{lstm}.{piece}"]) for lstm in ("att_lstm", "lang_lstm") for piece in _PIECES
    )
    width = first_past.shape[1]
    return {
        "lstm.input.weight": first_in[:, 2 * width :],
        "lstm.input.bias": first_bias,
        "lstm.recurrent.weight": torch.cat((first_in[:, :width], first_past), 1),
        "lstm.recurrent.bias": first_past_bias,
        "image_gates.weight": first_in[:, width : 2 * width],
        "language_lstm.input.weight": second_in,
        "language_lstm.input.bias": second_bias,
        "language_lstm.recurrent.weight": second_past,
        "language_lstm.recurrent.bias": second_past_bias,
    }


def from_official(name: str, state_dict: Mapping[str, Tensor], **sizes: Any) -> Captioner:
    """See `zoo.weights.from_official`; shapes do not determine `max_len`, `sentences` and `graph`, which is "none"."""
    sizes = {"graph": "none", **read_sizes(state_dict), **sizes}
    left_out: tuple[str, ...] = () if sizes["graph"] == "given" else ("graph.",)
    if not {**model_card(name).arguments, **sizes}.get("sentences"):
        left_out += ("sentences.", "ssg_")
    tensors = {own: tensor for own, tensor in zoo_tensors(state_dict).items() if not own.startswith(left_out)}
    hint = "the model must be the checkpoint's, whose dictionary is passed as memory_cell"
    return build_fitting(name, tensors, {own: own for own in tensors}, sizes, hint)


def read_sizes(official: Mapping[str, Tensor]) -> dict[str, Any]:
    """The arguments of `create_model` for these weights; ZooError if this is not a state dict of the model."""
    where = {
        "vocab_size": ("logit.weight", 0),
        "d_model": ("logit.weight", 1),
        "d_embedding": ("embed.0.weight", 1),
        "visual_dim": ("att_embed.0.weight", 1),
        "image_dim": ("fc_embed.0.weight", 1),
        "d_attention": ("rela_ctx2att.weight", 0),
        "n_entries": ("memory_cell", 0),
    }
    return sizes_of_shapes(official, where, "SGAE's lstm_mem4", needed=_LSTMS)
