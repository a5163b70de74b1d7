"""Weights of X-LAN and X-Transformer (https://github.com/JDAI-CV/image-captioning, no licence stated).

Number 0 is begin, end and padding; embedding and logits have V + 1 rows. Released snapshots were saved from several
devices, so that every name begins with `module.`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from zoo.captioner import Captioner
from zoo.errors import ZooError
from zoo.weights.fitting import build_fitting, count_layers, sizes_of_shapes
from zoo.weights.recurrent import candidate_last

_ATTENTION = (
    (r"\bin_proj_(q|v1)\b", "query"),
    (r"\bin_proj_(k|v2)\b", "memory"),
    (r"\b(query|memory)\.0\b", r"\1.linear"),
    (r"\b(query|memory)\.2\b", r"\1.norm"),
    (r"\battn_net\.attention_basic\.0\b", "joint"),
    (r"\battn_net\.attention_last\b", "spatial"),
    (r"\battn_net\.attention_last2\b", "channel"),
)
_X_LAN = (
    (r"^word_embed\b", "embedding"),
    (r"^att_embed\b", "region_embedding"),
    (r"^encoder_layers\.layers\.(\d+)\.encoder_attn\b", r"encoder.layers.\1.attention"),
    (r"^encoder_layers\.bifeat_emb\.(\d+)\.0\b", r"encoder.layers.\1.fusion.linear"),
    (r"^encoder_layers\.layer_norms\.(\d+)\b", r"encoder.layers.\1.fusion.norm"),
    (r"^encoder_layers\.proj\b", "encoder.output"),
    (r"^encoder_layers\.layer_norm\b", "encoder.norm"),
    (r"^attention\.layers\.(\d+)\.encoder_attn\b", r"attentions.\1"),
    (r"^attention\.proj\b", "attended"),
    (r"^attention\.layer_norm\b", "attended_norm"),
    (r"^att2ctx\.0\b", "context"),
    (r"^logit\b", "vocabulary"),
)
_X_TRANSFORMER = (
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
)
_LSTM = tuple(f"att_lstm.{part}" for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
_COMPUTED = "decoder.embed_positions.pe"
_AFTER = {"in_proj_q": "in_proj_v1", "in_proj_k": "in_proj_v2"}
_FIRST, _SECOND = (re.compile(rf"\b({'|'.join(names)})\b") for names in (_AFTER.keys(), _AFTER.values()))


def zoo_name(official: str) -> str:
    """The zoo's name of a parameter, given the authors' name of it in a whole model; the LSTM's have other shapes.

    An attention's projections of the query have one name here, and those of the memory.
    """
    parts = _X_TRANSFORMER if official.startswith(("encoder.", "decoder.")) else _X_LAN
    for pattern, own in (*_ATTENTION, *parts):
        official = re.sub(pattern, own, official)
    return official


def zoo_tensors(official: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The authors' tensors, or their gradients, under the zoo's names and in its layout; unknown names are kept."""
    found: dict[str, Tensor] = {}
    for key, tensor in official.items():
        if key not in (*_LSTM, _COMPUTED) and not _SECOND.search(key):
            second = _FIRST.sub(lambda part: _AFTER[part[0]], key)
            joined = second != key and second in official
            found[zoo_name(key)] = torch.cat((tensor, official[second])) if joined else tensor
    if not all(key in official for key in _LSTM):
        return found
    weight_input, weight_past, bias_input, bias_past = (candidate_last(official[key]) for key in _LSTM)
    width = weight_past.shape[1]
    return found | {
        "lstm.input.weight": weight_input[:, :width],
        "lstm.input.bias": bias_input,
        "lstm.recurrent.weight": torch.cat((weight_input[:, width:], weight_past), 1),
        "lstm.recurrent.bias": bias_past,
    }


def from_official(name: str, state_dict: Mapping[str, Tensor], **sizes: Any) -> Captioner:
    """See `zoo.weights.from_official`; shapes determine everything but `max_len`."""
    official = without_prefix(state_dict)
    sizes = {**read_sizes(official), **sizes}
    family = "x_lan" if _is_x_lan(official) else "x_transformer"
    if name.split("/")[0] != family:
        raise ZooError(f"these are weights of {family}, not of {name}", f"choose {family}")
    tensors = zoo_tensors(official)
    return build_fitting(name, tensors, {own: own for own in tensors}, sizes, "the model must be the checkpoint's")


def read_sizes(official: Mapping[str, Tensor]) -> dict[str, Any]:
    """The arguments of `create_model` that shapes determine; ZooError if this is a state dict of neither model."""
    official = without_prefix(official)
    lstm = _is_x_lan(official)
    encoder, vocabulary = ("encoder_layers", "logit") if lstm else ("encoder", "decoder.generator")
    attention = f"{encoder}.layers.0.encoder_attn.attn_net.attention_basic.0.weight"
    where = {
        "vocab_size": (f"{vocabulary}.weight", 0),
        "visual_dim": ("att_embed.0.weight", 1),
        "d_model": ("att_embed.0.weight", 0),
        "d_attention": (attention, 0),
        "n_heads": (attention, 1),
    }
    if not lstm:
        where["d_ff"] = ("encoder.layers.0.ff_layer.fc1.weight", 0)
    sizes: dict[str, Any] = sizes_of_shapes(official, where, "X-LAN or X-Transformer", needed=_LSTM if lstm else ())
    further = {"n_attention_layers": "attention"} if lstm else {"n_decoder_layers": "decoder"}
    stacks = {"n_encoder_layers": encoder, **further}
    layers = {size: count_layers(official, f"{stack}.layers") for size, stack in stacks.items()}
    return {**sizes, "n_heads": sizes["d_model"] // sizes["n_heads"], **layers}


def _is_x_lan(official: Mapping[str, Tensor]) -> bool:
    return "logit.weight" in official


def without_prefix(official: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors by their names without `module.`, which a model that was trained on several devices has before all."""
    return {key.removeprefix("module."): tensor for key, tensor in official.items()}
