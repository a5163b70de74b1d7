"""Weights of X-LAN and X-Transformer (https://github.com/JDAI-CV/image-captioning, no licence stated).

Number 0 is begin, end and padding; embedding and logits have V + 1 rows. Shapes determine everything but `max_len`.
"""

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from zoo.conversion import Converter, Tensors, lstm_names, zoo_lstm

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
_LSTM = "att_lstm"
_AFTER = {"in_proj_q": "in_proj_v1", "in_proj_k": "in_proj_v2"}
_FIRST, _SECOND = (re.compile(rf"\b({'|'.join(names)})\b") for names in (_AFTER.keys(), _AFTER.values()))


class _XLinear(Converter):
    def tensors(self, official: Mapping[str, Tensor]) -> Tensors:
        """See `Converter.tensors`; an attention's projections of the query are one tensor, and those of the memory."""
        joined = {}
        for key, tensor in official.items():
            if not _SECOND.search(key):
                second = _FIRST.sub(lambda part: _AFTER[part[0]], key)
                joined[key] = torch.cat((tensor, official[second])) if second != key and second in official else tensor
        found = super().tensors(joined)
        if not self.needed:
            return found
        return found | zoo_lstm(official, _LSTM, "lstm", official[f"{_LSTM}.weight_hh"].shape[1])

    def sizes(self, official: Mapping[str, Tensor]) -> dict[str, int]:
        """See `Converter.sizes`; shapes tell the channels of a head."""
        sizes = super().sizes(official)
        return {**sizes, "n_heads": sizes["d_model"] // sizes["n_heads"]}


def _where(encoder: str, logits: str) -> dict[str, tuple[str, int]]:
    attention = f"{encoder}.layers.0.encoder_attn.attn_net.attention_basic.0.weight"
    return {
        "vocab_size": (f"{logits}.weight", 0),
        "visual_dim": ("att_embed.0.weight", 1),
        "d_model": ("att_embed.0.weight", 0),
        "d_attention": (attention, 0),
        "n_heads": (attention, 1),
    }


X_LAN = _XLinear(
    what="X-LAN",
    parts=(*_ATTENTION, *_X_LAN),
    unused=r"^att_lstm\.",
    where=_where("encoder_layers", "logit"),
    stacks={"n_encoder_layers": "encoder_layers.layers", "n_attention_layers": "attention.layers"},
    needed=lstm_names(_LSTM),
    shared_number=("word_embed.0.weight", "logit"),
)
X_TRANSFORMER = _XLinear(
    what="X-Transformer",
    parts=(*_ATTENTION, *_X_TRANSFORMER),
    unused=r"^decoder\.embed_positions\.pe$",
    where={**_where("encoder", "decoder.generator"), "d_ff": ("encoder.layers.0.ff_layer.fc1.weight", 0)},
    stacks={"n_encoder_layers": "encoder.layers", "n_decoder_layers": "decoder.layers"},
    shared_number=("decoder.embed_tokens.weight", "decoder.generator"),
)
