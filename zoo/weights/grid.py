"""Weights of M2, GET, RSTNet, DLCT and GRIT, and of PureT.

https://github.com/aimagelab/meshed-memory-transformer, https://github.com/luo3300612/image-captioning-DLCT,
https://github.com/zhangxuying1004/RSTNet (all BSD-3-Clause) and https://github.com/davidnvq/grit (headers: Creative
Commons Attribution). They were trained with the faults of the released code, so models are created with `quirks`;
`quirks=False` masks padded regions as given. Shapes give `n_heads` of none of them, and no heads of BERT; `leak=False`
trains as words are decoded, `codes=False` leaves the checkpoint's code of boxes out.

PureT (https://github.com/232525/PureT, no licence stated): `puret` leaves the backbone of the checkpoint out,
`puret/end-to-end` has it. Number 0 is begin, end and padding; embedding and logits have V + 1 rows. Shapes determine
neither `shift` nor the backbone, and `grid` only where the masks of shifted windows are in the checkpoint.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from zoo.conversion import Converter, Tensors, candidate_last, count_layers
from zoo.errors import ZooError
from zoo.registry import default_arguments

_LANGUAGE = "decoder.language_model."
_PAIR_WEIGHTS = re.compile(r"encoder\.WGs\.(\d+)\.(weight|bias)")
_BERT_HEAD = 64
_NAMES = (
    (r"^decoder\.fc\b", "vocabulary"),
    (r"^decoder\.word_emb\b", "embedding.words"),
    (r"^decoder\.pos_emb\.weight\b", "embedding.positions.table"),
    (r"^(en|de)coder\.layers\b", r"\1coder_layers"),
    (r"\bfc_q\b", "query"),
    (r"\bfc_k\b", "key"),
    (r"\bfc_v\b", "value"),
    (r"\bfc1\b", "inner"),
    (r"\bfc2\b", "outer"),
)
_SIZES = {"vocab_size": ("decoder.fc.weight", 0), "max_len": ("decoder.pos_emb.weight", 0)}
_STACKS = {"n_encoder_layers": "encoder.layers", "n_decoder_layers": "decoder.layers"}
_BRANCHES = (
    (r"\b(?:self_att|mhatt)\b", "mixer"),
    (r"\benc_att\b", "cross"),
    (r"\bpwff\b", "feed_forward"),
    (r"\b(mixer|grid|cross|feed_forward)\.layer_norm\b", r"\1_norm"),
    (r"\bmixer\.attention\b", "mixer"),
    (r"\b(grid|cross)\.attention\b", r"\1_attention"),
    (r"\bfc_o\b", "output"),
)


M2 = Converter(
    what="the meshed-memory transformer",
    parts=(
        (r"^encoder\.fc\b", "input"),
        (r"^encoder\.layer_norm\b", "input_norm"),
        *_NAMES,
        *_BRANCHES,
        (r"\bfc_alpha(\d+)\b", lambda found: f"gates.{int(found[1]) - 1}"),
        (r"\bm_k\b", "memory_keys"),
        (r"\bm_v\b", "memory_values"),
    ),
    unused=r"\brunning_",
    where={
        **_SIZES,
        "visual_dim": ("encoder.fc.weight", 1),
        "d_model": ("encoder.fc.weight", 0),
        "d_ff": ("encoder.layers.0.pwff.fc1.weight", 0),
        "memory_slots": ("encoder.layers.0.mhatt.attention.m_k", 1),
    },
    stacks=_STACKS,
    fixed={"quirks": True},
    padded=True,
    hint="n_heads=... must be that of the training",
)


class _Grid(Converter):
    def tensors(self, official: Mapping[str, Tensor]) -> Tensors:
        heads: dict[str, dict[int, Tensor]] = {}
        rest = {}
        for key, tensor in official.items():
            if match := _PAIR_WEIGHTS.fullmatch(key):
                heads.setdefault(match[2], {})[int(match[1])] = tensor
            else:
                rest[key] = candidate_last(tensor) if key.startswith("encoder.rnn.") else tensor
        return super().tensors(rest) | {
            f"pair_weights.linear.{part}": torch.cat([tensor for _, tensor in sorted(tensors.items())])
            for part, tensors in heads.items()
        }

    def selected(self, name: str, official: Mapping[str, Tensor], sizes: Mapping[str, Any]) -> Tensors:
        found = super().selected(name, official, sizes)
        if sizes.get("codes", True):
            return found
        return {own: tensor for own, tensor in found.items() if not own.startswith("box_code.")}

    def sizes(self, official: Mapping[str, Tensor]) -> dict[str, Any]:
        told: Converter = self
        if "encoder.fc_grid.weight" in official:
            streams = {"visual_dim": ("encoder.fc_region.weight", 1), "grid_dim": ("encoder.fc_grid.weight", 1)}
            stacks = {**self.stacks, "n_encoder_layers": "encoder.layers_region"}
            told = replace(self, where={**self.where, **streams}, stacks=stacks)
        sizes = Converter.sizes(told, official)
        if any(key.startswith(_LANGUAGE) for key in official):
            sizes |= {"bert": self._bert_sizes(official), "leak": True}
        return sizes

    def _bert_sizes(self, official: Mapping[str, Tensor]) -> dict[str, int]:
        """Sizes of the language model's BERT, with its usual heads of 64 channels."""
        bert = f"{_LANGUAGE}language_model."
        where = {
            "vocab_size": (f"{bert}embeddings.word_embeddings.weight", 0),
            "hidden_size": (f"{bert}embeddings.word_embeddings.weight", 1),
            "max_position_embeddings": (f"{bert}embeddings.position_embeddings.weight", 0),
            "intermediate_size": (f"{bert}encoder.layer.0.intermediate.dense.weight", 0),
        }
        sizes = self.read(official, where)
        layers, heads = count_layers(official, f"{bert}encoder.layer"), max(sizes["hidden_size"] // _BERT_HEAD, 1)
        return {**sizes, "num_hidden_layers": layers, "num_attention_heads": heads}


CONVERTER = _Grid(
    what="GET, RSTNet or DLCT",
    parts=(
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
        *_NAMES,
        (r"\b(?:self_att|mhatt)\.(?:attention\.)?", "mixer."),
        (r"\benc_att\.(?:attention\.)?", "cross_attention."),
        (r"\b(mixer|cross_attention)\.layer_norm\b", r"\1.gate.norm"),
        (r"\blnorm1?\b", "mixer_norm"),
        (r"\blnorm2\b", "cross_norm"),
        (r"\bpwff\.layer_norm\b", "feed_forward_norm"),
        (r"\bpwff\b", "feed_forward"),
        (r"\bfc_o\b(?:\.0\b)?", "gate.output"),
        (r"\bfc_s\b", "signal"),
    ),
    unused=r"\brunning_|\.pooler\.|\.position_ids$|\.proj_to_vocab\.",  # states, and what no caption comes through
    where={
        **_SIZES,
        "visual_dim": ("encoder.fc.weight", 1),
        "d_model": ("decoder.fc.weight", 1),
        "d_ff": ("decoder.layers.0.pwff.fc1.weight", 0),
    },
    stacks=_STACKS,
    fixed={"quirks": True},
    padded=True,
    hint="n_heads=... must be that of the training",
)

_FIRST = "cap_generator.layers.0."


class _GRIT(Converter):
    """Shapes do not give `n_heads`; names give the kind of heads."""

    def selected(self, name: str, official: Mapping[str, Tensor], sizes: Mapping[str, Any]) -> Tensors:
        heads, own = sizes["heads"], default_arguments(name)["heads"]
        if heads != own:
            fitting = "grit" if heads == "parallel" else f"grit/{heads}"
            raise ZooError(f"these are weights of {heads} heads, and {name} has {own} ones", f"choose {fitting}")
        return super().selected(name, official, sizes)

    def sizes(self, official: Mapping[str, Tensor]) -> dict[str, Any]:
        gated, joined = (f"{_FIRST}{part}.weight" in official for part in ("fc_alpha1", "vis_att.attention.fc_q"))
        heads = "concatenated" if joined else "parallel" if gated else "sequential"
        return {**super().sizes(official), "heads": heads}


GRIT = _GRIT(  # trained on regions as its detector gives them, and with a table of positions that is random numbers
    what="GRIT",
    parts=(
        (r"^grid_net\.fc\b", "grid_input.linear"),
        (r"^grid_net\.layer_norm\b", "grid_input.norm"),
        (r"^grid_net\.", "encoder."),
        (r"^cap_generator\.", "decoder."),
        *_NAMES,
        (r"\bvis_att1\b", "grid"),
        (r"\bvis_att2?\b", "cross"),
        *_BRANCHES,
        (r"\bfc_alpha1\b", "gates.0"),
    ),
    # The detector, states of decoding, a gate and memory slots that the released code never uses.
    unused=r"^detector\.|\brunning_|\bfc_alpha2\b|\bm_[kv]\b",
    where={
        "vocab_size": ("cap_generator.fc.weight", 0),
        "visual_dim": ("cap_generator.fc.weight", 1),
        "grid_dim": ("grid_net.fc.weight", 1),
        "d_model": ("grid_net.fc.weight", 0),
        "d_ff": (f"{_FIRST}pwff.fc1.weight", 0),
        "max_len": ("cap_generator.pos_emb.weight", 0),
    },
    stacks={"n_encoder_layers": "grid_net.layers", "n_decoder_layers": "cap_generator.layers"},
    fixed={"embed_regions": False, "quirks": True},
    padded=True,
    hint="n_heads=... must be that of the training",
)

_FUSION = re.compile(r"decoder_layers\.\d+\.fusion\.linear\.weight")
_TABLE = "encoder.layers.0.encoder_attn.relative_position_bias_table"
_SHIFTED = "encoder.layers.1.attn_mask"


class _PureT(Converter):
    def tensors(self, official: Mapping[str, Tensor]) -> Tensors:
        """See `Converter.tensors`; a fusion has its vector before the word."""
        return {
            name: torch.cat(tensor.chunk(2, 1)[::-1], 1) if _FUSION.fullmatch(name) else tensor
            for name, tensor in super().tensors(official).items()
        }

    def sizes(self, official: Mapping[str, Tensor]) -> dict[str, Any]:
        sizes = super().sizes(official)
        sizes["window"] = (math.isqrt(sizes["window"]) + 1) // 2
        if _SHIFTED in official:
            sizes["grid"] = sizes["window"] * math.isqrt(official[_SHIFTED].shape[0])
        return sizes


PURET = _PureT(
    what="PureT",
    parts=(
        (r"^att_embed\b", "input"),
        (r"^decoder\.word_embed\b", "embedding.words"),
        (r"^decoder\.pos_embed\.weight\b", "embedding.positions.table"),
        (r"^decoder\.generator\b", "vocabulary"),
        (r"^encoder\.layers\.(\d+)\.layer_norm2\b", r"encoder_layers.\1.feed_forward_norm"),
        (r"^(en|de)coder\.layers\b", r"\1coder_layers"),
        (r"\bencoder_attn\b|\bword_attn\b", "mixer"),
        (r"\bcross_att\b", "cross_attention"),
        (r"\blayer_norm1\b", "mixer_norm"),
        (r"\blayer_norm2\b", "cross_norm"),
        (r"\blayer_norm3\b", "feed_forward_norm"),
        (r"\bfuse_layer\.0\b", "fusion.linear"),
        (r"\bfuse_layer_norm\b", "fusion.norm"),
        (r"\bff_layer\.fc1\b", "feed_forward.inner"),
        (r"\bff_layer\.fc2\b", "feed_forward.outer"),
        (r"\bq_linear\b", "query"),
        (r"\bk_linear\b", "key"),
        (r"\bv_linear\b", "value"),
        (r"\bo_linear\b", "output"),
        (r"\brelative_position_bias_table\b", "bias_table"),
    ),
    unused=r"^backbone\.|relative_position_index$|attn_mask$",
    where={
        "vocab_size": ("decoder.generator.weight", 0),
        "visual_dim": ("att_embed.0.weight", 1),
        "d_model": ("decoder.generator.weight", 1),
        "d_ff": ("decoder.layers.0.ff_layer.fc1.weight", 0),
        "max_len": ("decoder.pos_embed.weight", 0),
        "n_heads": (_TABLE, 1),
        "window": (_TABLE, 0),
    },
    stacks={"n_encoder_layers": "encoder.layers", "n_decoder_layers": "decoder.layers"},
    padded=True,
    shared_number=("decoder.word_embed.weight", "decoder.generator"),
    backbone="backbone.",
    hint="grid=..., shift=... and the backbone's options must be those of the training",
)
