"""How papers write the names of models: in LaTeX, figures and CSV."""

from collections.abc import Mapping
from typing import Final

FAMILIES: Final[Mapping[str, str]] = {
    "adaptive_attention": "Adaptive Attention",
    "aoanet": "AoANet",
    "att2all": "Att2all",
    "att2in": "Att2in",
    "blind": "Blind",
    "blip": "BLIP",
    "cgru": "cGRU",
    "dlct": "DLCT",
    "expansionnet_v1": "ExpansionNet v1",
    "expansionnet_v2": "ExpansionNet v2",
    "gcn_lstm": "GCN-LSTM",
    "get": "GET",
    "git": "GIT",
    "grit": "GRIT",
    "human": "Human",
    "image_transformer": "Image Transformer",
    "m2": "M2 Transformer",
    "majority": "Majority caption",
    "object_relation_transformer": "Object Relation Tr.",
    "puret": "PureT",
    "retrieval": "Nearest image",
    "rstnet": "RSTNet",
    "sgae": "SGAE",
    "show_attend_tell": "Show, Attend & Tell",
    "show_tell": "Show & Tell",
    "transformer": "Transformer",
    "transformer_aoa": "Transformer w/ AoA",
    "transformer_base": "Transformer (base)",
    "updown": "Up-Down",
    "vit_gpt2": "ViT-GPT2",
    "x_lan": "X-LAN",
    "x_transformer": "X-Transformer",
}
"""The display name of each family; a model without one is shown by its own name."""


def display_name(model: str, renamed: Mapping[str, str] | None = None) -> str:
    """A model's name for a paper: as `renamed` says, or else its family's, with the variant in parentheses."""
    if renamed and model in renamed:
        return renamed[model]
    family, _, variant = model.partition("/")
    name = FAMILIES.get(family)
    if name is None:
        return model
    return f"{name} ({variant})" if variant else name
