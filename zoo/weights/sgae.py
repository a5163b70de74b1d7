"""Weights of SGAE's released `lstm_mem4` (https://github.com/yangxuntu/SGAE, no licence stated).

The dictionary lies in a file of its own there, and is passed as `memory_cell`. Number 0 is begin, end and padding.
Parts for sentence graphs (`ssg_*`) are left out unless `sentences` is true, and those of the image graph unless `graph`
is "given". Two parts that no output of theirs depends on (`ssg_obj_attr_fc`, `ssg_mem`) are always left out. Shapes do
not determine `max_len`, `sentences` and `graph`, which is "none".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from zoo.registry import model_card
from zoo.weights.converter import Converter, Tensors, lstm_names, zoo_attention_lstm, zoo_lstm


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


CONVERTER = _SGAE(
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
