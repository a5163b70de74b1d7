"""Weights of GET, RSTNet and DLCT (https://github.com/luo3300612/image-captioning-DLCT and
https://github.com/zhangxuying1004/RSTNet, both BSD-3-Clause).

They were trained with the faults of the released code, so models are created with `quirks`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from zoo.captioner import Captioner
from zoo.weights.fitting import build_fitting, count_layers, sizes_of_shapes
from zoo.weights.recurrent import candidate_last

_LANGUAGE = "decoder.language_model."
_PARTS = (
    (r"^decoder\.language_model\.language_model\b", "language.words.bert"),
    (r"^decoder\.language_model\.proj_to_caption_model\b", "language.words.linear"),
    (r"^decoder\.language_model\.pos_emb\.weight\b", "language.positions.table"),
    (r"^decoder\.language_model\.(?:encoder_layer\.)?", "language."),
    (r"^encoder\.fc_(region|grid)\b", r"\1_input.linear"),
    (r"^encoder\.layer_n(?:or|ro)m_(region|grid)\b", r"\1_input.norm"),
    (r"^encoder\.layers_region\.(\d+)", r"encoder_layers.\1.regions"),
    (r"^encoder\.layers_grid\.(\d+)", r"encoder_layers.\1.grid"),
    (r"^encoder\.region2grid\.(\d+)", r"encoder_layers.\1.region_to_grid"),
    (r"^encoder\.grid2region\.(\d+)", r"encoder_layers.\1.grid_to_region"),
    (r"^box_embedding\b", "box_code"),
    (r"^encoder\.fc\b", "input.linear"),
    (r"^encoder\.layer_norm\b", "input.norm"),
    (r"^encoder\.rnn\.(weight|bias)_ih_l0\b", r"fusion.input.\1"),
    (r"^encoder\.rnn\.(weight|bias)_hh_l0\b", r"fusion.recurrent.\1"),
    (r"^decoder\.fc\b", "vocabulary"),
    (r"^decoder\.word_emb\b", "embedding.words"),
    (r"^decoder\.pos_emb\.weight\b", "embedding.positions.table"),
    (r"^(en|de)coder\.layers\b", r"\1coder_layers"),
    (r"\b(?:self_att|mhatt)\.(?:attention\.)?", "mixer."),
    (r"\benc_att\.(?:attention\.)?", "cross_attention."),
    (r"\b(mixer|cross_attention)\.layer_norm\b", r"\1.gate.norm"),
    (r"\blnorm1?\b", "mixer_norm"),
    (r"\blnorm2\b", "cross_norm"),
    (r"\bpwff\.layer_norm\b", "feed_forward_norm"),
    (r"\bpwff\b", "feed_forward"),
    (r"\bfc_q\b", "query"),
    (r"\bfc_k\b", "key"),
    (r"\bfc_v\b", "value"),
    (r"\bfc_o\b(?:\.0\b)?", "gate.output"),
    (r"\bfc_s\b", "signal"),
    (r"\bfc1\b", "inner"),
    (r"\bfc2\b", "outer"),
)
_PAIR_WEIGHTS = re.compile(r"encoder\.WGs\.(\d+)\.(weight|bias)")
_UNUSED = re.compile(r"\brunning_|\.pooler\.|\.position_ids$|\.proj_to_vocab\.")
"""States of decoding, which are empty, and parts of the language model that no caption comes through."""
_BERT_HEAD = 64


def zoo_name(official: str) -> str:
    """The zoo's name of a parameter, given the authors' name of it in a whole model."""
    for pattern, own in _PARTS:
        official = re.sub(pattern, own, official)
    return official


def zoo_tensors(official: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The authors' tensors, or their gradients, under the zoo's names and in its layout; unknown names are kept."""
    found: dict[str, Tensor] = {}
    heads: dict[str, dict[int, Tensor]] = {}
    for key, tensor in official.items():
        if match := _PAIR_WEIGHTS.fullmatch(key):
            heads.setdefault(match[2], {})[int(match[1])] = tensor
        elif not _UNUSED.search(key):
            found[zoo_name(key)] = candidate_last(tensor) if key.startswith("encoder.rnn.") else tensor
    for part, tensors in heads.items():
        found[f"pair_weights.linear.{part}"] = torch.cat([tensor for _, tensor in sorted(tensors.items())])
    return found


def from_official(name: str, state_dict: Mapping[str, Tensor], **sizes: Any) -> Captioner:
    """See `zoo.weights.from_official`. Shapes give `n_heads` only where there is a geometry, and no heads of BERT.

    `quirks=False` masks padded regions as given, `leak=False` trains as words are decoded, `codes=False` leaves the
    checkpoint's code of boxes out.
    """
    tensors = zoo_tensors(state_dict)
    if not sizes.get("codes", True):  # the released evaluation leaves the trained code of boxes out
        tensors = {own: tensor for own, tensor in tensors.items() if not own.startswith("box_code.")}
    hint = "n_heads=... must be that of the training"
    return build_fitting(name, tensors, {own: own for own in tensors}, {**read_sizes(state_dict), **sizes}, hint)


def read_sizes(official: Mapping[str, Tensor]) -> dict[str, Any]:
    """The arguments of `create_model` for these weights; ZooError if this is not a state dict of such a model."""
    dual = "encoder.fc_grid.weight" in official
    where = {
        "vocab_size": ("decoder.fc.weight", 0),
        "visual_dim": ("encoder.fc_region.weight" if dual else "encoder.fc.weight", 1),
        "d_model": ("decoder.fc.weight", 1),
        "d_ff": ("decoder.layers.0.pwff.fc1.weight", 0),
        "max_len": ("decoder.pos_emb.weight", 0),
    }
    if dual:
        where["grid_dim"] = ("encoder.fc_grid.weight", 1)
    sizes: dict[str, Any] = sizes_of_shapes(official, where, "GET, RSTNet or DLCT")
    sizes["n_encoder_layers"] = count_layers(official, "encoder.layers_region" if dual else "encoder.layers")
    sizes["n_decoder_layers"] = count_layers(official, "decoder.layers")
    if any(key.startswith(_LANGUAGE) for key in official):
        sizes |= {"bert": _bert_sizes(official), "leak": True}
    return {**sizes, "max_len": sizes["max_len"] - 1, "quirks": True}  # row 0 is that of padding


def _bert_sizes(official: Mapping[str, Tensor]) -> dict[str, int]:
    """Sizes of the language model's BERT, with its usual heads of 64 channels."""
    bert = f"{_LANGUAGE}language_model."
    where = {
        "vocab_size": (f"{bert}embeddings.word_embeddings.weight", 0),
        "hidden_size": (f"{bert}embeddings.word_embeddings.weight", 1),
        "max_position_embeddings": (f"{bert}embeddings.position_embeddings.weight", 0),
        "intermediate_size": (f"{bert}encoder.layer.0.intermediate.dense.weight", 0),
    }
    sizes = sizes_of_shapes(official, where, "RSTNet")
    heads = max(sizes["hidden_size"] // _BERT_HEAD, 1)
    return {**sizes, "num_hidden_layers": count_layers(official, f"{bert}encoder.layer"), "num_attention_heads": heads}
