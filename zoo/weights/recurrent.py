"""Weights of https://github.com/ruotianluo/ImageCaptioning.pytorch (MIT).

Its models `show_tell`, `fc`, `newfc`, `att2in`, `att2in2`, `att2all2`, `adaatt` and `updown`, without batch
normalisation and with one layer of logits; and its `transformer`. Shapes do not determine `max_len`, and `n_heads` of
the latter.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from zoo.errors import ZooError
from zoo.weights.converter import Converter, Tensors, candidate_last, lstm_names, zoo_attention_lstm, zoo_lstm

_TORCH_LSTM = re.compile(r"core\.weight_(ih|hh)_l(\d+)")
_UPDOWN_LSTMS = lstm_names("core.att_lstm", "core.lang_lstm")


class _Recurrent(Converter):
    def tensors(self, official: Mapping[str, Tensor]) -> Tensors:
        found = {}
        for key, tensor in official.items():
            if match := _TORCH_LSTM.fullmatch(key):
                layer = f"upper_layers.{int(match[2]) - 1}" if int(match[2]) else "lstm"
                found[f"{layer}.{'input' if match[1] == 'ih' else 'recurrent'}.weight"] = candidate_last(tensor)
        found |= super().tensors(official)
        if not any(key in official for key in _UPDOWN_LSTMS):
            return found
        if missing := [key for key in _UPDOWN_LSTMS if key not in official]:
            raise ZooError(f"this is not a state dict of {self.what}: {', '.join(missing)} missing")
        words, width = official["embed.0.weight"].shape[1], official["core.lang_lstm.weight_hh"].shape[1]
        attention = zoo_attention_lstm(official, "core.att_lstm", "", words)
        return found | attention | zoo_lstm(official, "core.lang_lstm", "language_lstm", width)

    def sizes(self, official: Mapping[str, Tensor]) -> dict[str, Any]:
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
        sizes = self.read(official, where)
        layers = [int(match[2]) for key in official if (match := _TORCH_LSTM.fullmatch(key))]
        return {**sizes, "n_layers": 1 + max(layers)} if layers else sizes


CONVERTER = _Recurrent(
    what="an LSTM captioner of ImageCaptioning.pytorch",
    parts=(
        (r"^embed\.(0\.)?weight", r"embedding.\1weight"),
        (r"^logit\.", "vocabulary."),
        (r"^(?:img|fc)_embed\.", "image_embedding."),
        (r"^att_embed\.", "region_embedding."),
        (r"^ctx2att\.", "attention.key."),
        (r"^core\.attention\.(?:h2att|ho_embed)\.", "attention.query."),
        (r"^core\.attention\.alpha_net\.", "attention.score."),
        (r"^core\.attention\.fr_linear\.0\.", "attention.sentinel."),
        (r"^core\.attention\.fr_embed\.", "attention.sentinel_key."),
        (r"^core\.attention\.ho_linear\.0\.", "attention.state."),
        (r"^core\.attention\.att2h\.", "output."),
        (r"^core\.lstm\.w2h\.", "lstm.input."),
        (r"^core\.lstm\.h2h\.0\.", "lstm.recurrent."),
        (r"^core\.lstm\.v2h\.", "image_gates."),
        (r"^core\.lstm\.r_w2h\.", "sentinel_input."),
        (r"^core\.lstm\.r_v2h\.", "sentinel_image."),
        (r"^core\.lstm\.r_h2h\.", "sentinel_past."),
        (r"^core\.a2[ch]\.", "attended."),
        (r"^_?core\.i2h\.", "lstm.input."),
        (r"^_?core\.h2h\.", "lstm.recurrent."),
    ),
    unused=r"^core\.(weight_|(att|lang)_lstm\.)",
    hint="there are converters for models without batch normalisation, whose image is the mean of its regions",
)
TRANSFORMER = Converter(
    what="ImageCaptioning.pytorch's transformer",
    parts=(
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
    where={
        "vocab_size": ("model.generator.proj.weight", 0),
        "visual_dim": ("att_embed.0.weight", 1),
        "d_model": ("model.generator.proj.weight", 1),
        "d_ff": ("model.encoder.layers.0.feed_forward.w_1.weight", 0),
    },
    stacks={"n_encoder_layers": "model.encoder.layers", "n_decoder_layers": "model.decoder.layers"},
    hint="n_heads=... must be that of the training, and the model without batch normalisation",
)
