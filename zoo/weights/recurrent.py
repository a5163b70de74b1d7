"""Weights of captioners with LSTMs, and of the transformer that comes with some of them.

https://github.com/ruotianluo/ImageCaptioning.pytorch (MIT): `show_tell`, `fc`, `newfc`, `att2in`, `att2in2`,
`att2all2`, `adaatt` and `updown`, without batch normalisation and with one layer of logits; and its `transformer`.
Shapes do not determine `max_len`, and `n_heads` of the latter.

AoANet (https://github.com/husthuaan/AoANet, MIT) and the Image Transformer, whose code builds on it
(https://github.com/wtliao/ImageTransformer, no licence stated). Both use number 0 for begin, end and padding, and the
unknown word is the last of the V others: embedding and logits have V + 1 rows. Shapes do not determine `n_heads` and,
for Image Transformer, `graph`.

X-modaler's GCN-LSTM (https://github.com/YehLi/xmodaler, Apache-2.0). Number 0 is begin, end and padding. Labels of
edges are those of a semantic graph, which comes with the data (see `GCNLSTM.encode_graph`), unless `graph` says
otherwise; `quirks=False` masks padding. Shapes do not determine `max_len`.

SGAE's released `lstm_mem4` (https://github.com/yangxuntu/SGAE, no licence stated). The dictionary lies in a file of its
own there, and is passed as `memory_cell`. Number 0 is begin, end and padding. Parts for sentence graphs (`ssg_*`) are
left out unless `sentences` is true, and those of the image graph unless `graph` is "given". Two parts that no output
of theirs depends on (`ssg_obj_attr_fc`, `ssg_mem`) are always left out. Shapes do not determine `max_len`, `sentences`
and `graph`, which is "none".
"""

import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from zoo.conversion import Converter, Tensors, candidate_last, lstm_names, zoo_attention_lstm, zoo_lstm
from zoo.errors import ZooError
from zoo.registry import model_card

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

_AOA_LSTM = "core.att_lstm"


class _AoA(Converter):
    def tensors(self, official: Mapping[str, Tensor]) -> Tensors:
        words = official[f"{_AOA_LSTM}.weight_ih"].shape[1] - official[f"{_AOA_LSTM}.weight_hh"].shape[1]
        return super().tensors(official) | zoo_lstm(official, _AOA_LSTM, "lstm", words)

    def sizes(self, official: Mapping[str, Tensor]) -> dict[str, Any]:
        return {size: value for size, value in super().sizes(official).items() if value}  # there may be no refiner


AOA = _AoA(
    what="AoANet or the Image Transformer",
    parts=(
        (r"self_attn\.(q_linears|linears\.0)\b", "mixer.query"),
        (r"self_attn\.linears\.1\b", "mixer.key"),
        (r"self_attn\.linears\.2\b", "mixer.value"),
        (r"self_attn\.k_linears\b", "mixer.keys"),
        (r"self_attn\.v_linears\b", "mixer.values"),
        (r"self_attn\.aoa_layer\.0\b", "mixer.gate.mix"),
        (r"sublayer\.0\.norm\b", "mixer_norm"),
        (r"\ba_2\b", "gain"),
        (r"\bb_2\b", "shift"),
        (r"^embed\.", "embedding."),
        (r"^att_embed\.", "region_embedding."),
        (r"^ctx2att\b", "memories.0"),
        (r"^core\.implicit(\d+)\b", lambda found: f"memories.{int(found[1]) - 1}"),
        (r"^core\.att2ctx\.0\b", "gate.mix"),
        (r"^core\.attention\.norm\b", "query_norm"),
        (r"^core\.attention\.linears\.0\b", "query"),
        (r"^logit\b", "vocabulary"),
    ),
    unused=r"^core\.att_lstm\.",
    where={
        "vocab_size": ("logit.weight", 0),
        "visual_dim": ("att_embed.0.weight", 1),
        "d_model": ("att_embed.0.weight", 0),
        "d_word": ("embed.0.weight", 1),
    },
    stacks={"n_encoder_layers": "refiner.layers"},
    needed=lstm_names(_AOA_LSTM),
    hint="n_heads=... must be that of the training, and the variant that of the checkpoint",
)


class _GCNLSTM(Converter):
    def tensors(self, official: Mapping[str, Tensor]) -> Tensors:
        words = official["token_embed.embeddings.weight"].shape[1]
        attention = zoo_attention_lstm(official, "decoder.lstm1", "", words)
        return super().tensors(official) | attention | zoo_lstm(official, "decoder.lstm2", "language_lstm")


GCN_LSTM = _GCNLSTM(
    what="X-modaler's GCN-LSTM",
    parts=(
        (r"^token_embed\.embeddings\b", "embedding.0"),
        (r"^encoder\.gate_bias$", "convolution.label_gate"),
        (r"^encoder\.bias$", "convolution.label_bias"),
        (r"^encoder\.gcn_loop", "convolution.loop"),
        (r"^encoder\.gcn_sub", "convolution.forth"),
        (r"^encoder\.gcn_obj", "convolution.back"),
        (r"^decoder\.p_att_feats\b", "attention.key"),
        (r"^decoder\.att\.w_h\b", "attention.query"),
        (r"^decoder\.att\.w_alpha\b", "attention.score"),
        (r"^predictor\.logits\b", "vocabulary"),
    ),
    unused=r"^decoder\.lstm[12]\.",
    where={
        "vocab_size": ("predictor.logits.weight", 0),
        "visual_dim": ("encoder.gcn_loop.weight", 1),
        "d_model": ("predictor.logits.weight", 1),
        "d_embedding": ("token_embed.embeddings.weight", 1),
        "d_attention": ("decoder.p_att_feats.weight", 0),
        "n_labels": ("encoder.bias", 0),
    },
    fixed={"graph": "given", "quirks": True},
    needed=lstm_names("decoder.lstm1", "decoder.lstm2"),
)


class _SGAE(Converter):
    def tensors(self, official: Mapping[str, Tensor]) -> Tensors:
        """See `Converter.tensors`; only decoders whose LSTMs are there are in what is found."""
        found, words = super().tensors(official), official["embed.0.weight"].shape[1]
        for core, place in (("rela_core", ""), ("ssg_core", "sentences.")):
            if f"{core}.att_lstm.weight_ih" in official:
                found |= zoo_attention_lstm(official, f"{core}.att_lstm", place, words)
                found |= zoo_lstm(official, f"{core}.lang_lstm", f"{place}language_lstm")
        return found

    def selected(self, name: str, official: Mapping[str, Tensor], sizes: Mapping[str, Any]) -> Tensors:
        left_out: tuple[str, ...] = () if sizes["graph"] == "given" else ("graph.",)
        if not {**model_card(name).arguments, **sizes}.get("sentences"):
            left_out += ("sentences.", "ssg_")
        found = super().selected(name, official, sizes)
        return {own: tensor for own, tensor in found.items() if not own.startswith(left_out)}


SGAE = _SGAE(
    what="SGAE's lstm_mem4",
    parts=(
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
    ),
    unused=r"_lstm\.|^ssg_obj_attr_fc\.|^ssg_mem\.",
    where={
        "vocab_size": ("logit.weight", 0),
        "d_model": ("logit.weight", 1),
        "d_embedding": ("embed.0.weight", 1),
        "visual_dim": ("att_embed.0.weight", 1),
        "d_attention": ("rela_ctx2att.weight", 0),
        "n_entries": ("memory_cell", 0),
    },
    fixed={"graph": "none"},
    needed=lstm_names("rela_core.att_lstm", "rela_core.lang_lstm"),
    hint="the model must be the checkpoint's, whose dictionary is passed as memory_cell",
)
