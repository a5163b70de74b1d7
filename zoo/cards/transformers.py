"""Cards of the transformers on regions and grids: the plain one, object relations, meshed memory and what followed it
(GET, RSTNet, DLCT, GRIT), PureT, and the X-linear attention of X-LAN and X-Transformer.
"""

from typing import Any

from zoo.card import ModelCard, ReleasedWeights, trained_on_coco, variants
from zoo.cards.expansionnet import SWIN, SWIN_DATA, TINY_BACKBONE

CARDS: list[ModelCard] = []
_DETECTOR = "ImageNet and Visual Genome with labels (the detector that gives its features)"
_OVERLAP = {
    "coco": "Visual Genome, whose labels the detector saw, holds 51,208 of COCO's images, some of its evaluation "
    "splits among them. Whether the detector saw the latter depends on whose features the model is given."
}
_MESHED = ("<pad>", "<bos>", "<eos>", "<unk>")
_SIZES = {"d_model": 512, "d_ff": 2048, "n_heads": 8, "dropout": 0.1}
_TINY = {"d_model": 16, "d_ff": 32, "n_heads": 2, "n_encoder_layers": 2, "n_decoder_layers": 2, "max_len": 12}
_SIX: dict[str, Any] = {**_SIZES, "n_encoder_layers": 6, "n_decoder_layers": 6, "region_dropout": 0.5}
_THREE: dict[str, Any] = {**_SIZES, "n_encoder_layers": 3, "n_decoder_layers": 3}


def _add(rows: dict[str, tuple[str, dict[str, Any]]], **card: Any) -> None:
    """See `zoo.card.variants`; on regions and with the sizes above, where the card does not say otherwise."""
    CARDS.extend(variants(rows, **{"visual": "regions", "arguments": _THREE, "tiny": _TINY} | card))


_add(
    {"transformer": ("Pre-norm transformer of 6 + 6 layers on regions", {})},
    entry="zoo.models.transformer:Transformer",
    paper="Vaswani et al.: Attention Is All You Need, NeurIPS 2017; on images Sharma et al.: Conceptual Captions, "
    "ACL 2018",
    year=2017,
    source="https://github.com/ruotianluo/ImageCaptioning.pytorch",
    licence="MIT",
    arguments=_SIX,
)
_add(
    {
        "object_relation_transformer": (
            "Transformer of 6 + 6 layers whose encoder weighs how boxes lie to each other",
            {},
        )
    },
    entry="zoo.models.transformer:ObjectRelationTransformer",
    paper="Herdade, Kappeler, Boakye, Soares: Image Captioning: Transforming Objects into Words, NeurIPS 2019 "
    "(arXiv:1906.05963)",
    year=2019,
    source="https://github.com/yahoo/object_relation_transformer",
    licence="MIT",
    arguments=_SIX,
)
_add(
    {"m2": ("Meshed memory: learned slots in the encoder, gates to all its levels", {})},
    entry="zoo.models.m2:MeshedMemoryTransformer",
    paper="Cornia, Stefanini, Baraldi, Cucchiara: Meshed-Memory Transformer for Image Captioning, CVPR 2020 "
    "(arXiv:1912.08226)",
    year=2020,
    source="https://github.com/aimagelab/meshed-memory-transformer",
    licence="BSD-3-Clause",
    arguments={**_THREE, "memory_slots": 40},
    tiny={**_TINY, "memory_slots": 3},
)
_add(
    {
        "get": ("Global token through gated attention, fused over layers by an LSTM", {}),
        "get/no-fusion": ("GET without its LSTM over layers, as the released code by default", {"fusion": False}),
    },
    entry="zoo.models.get:GlobalEnhancedTransformer",
    paper="Ji, Luo, Sun, Chen, Luo, Wu, Gao, Ji: Improving Image Captioning by Leveraging Intra- and Inter-layer "
    "Global Representation in Transformer Network, AAAI 2021 (arXiv:2012.07061)",
    year=2021,
    source="https://github.com/luo3300612/image-captioning-DLCT",
    licence="BSD-3-Clause",
)
_add(
    {"rstnet": ("Geometry of grid cells, and a last layer that may look at language instead", {})},
    entry="zoo.models.rstnet:RSTNet",
    paper="Zhang, Sun, Luo, Ji, Zhou, Wu, Huang, Ji: RSTNet: Captioning with Adaptive Attention on Visual and "
    "Non-Visual Words, CVPR 2021",
    year=2021,
    source="https://github.com/zhangxuying1004/RSTNet",
    licence="BSD-3-Clause",
    arguments={**_THREE, "n_decoder_layers": 4},
    released=ReleasedWeights(
        pretraining=trained_on_coco(
            _DETECTOR, "Zhang et al., CVPR 2021; the authors' repository zhangxuying1004/RSTNet", _OVERLAP
        ),
        beam_size=5,
        max_len=20,
        preparation="words",
        specials=_MESHED,
    ),
)
_add(
    {"dlct": ("Regions and a grid at once: each level whole, and of the other what it touches", {})},
    entry="zoo.models.dlct:DualLevelTransformer",
    paper="Luo, Ji, Sun, Cao, Wu, Huang, Lin, Ji: Dual-Level Collaborative Transformer for Image Captioning, AAAI "
    "2021 (arXiv:2101.06462)",
    year=2021,
    source="https://github.com/luo3300612/image-captioning-DLCT",
    licence="BSD-3-Clause",
    visual="regions+grid",
    small={"grid_side": 4},
    released=ReleasedWeights(
        pretraining=trained_on_coco(
            _DETECTOR, "Luo et al., AAAI 2021; the repository luo3300612/image-captioning-DLCT", _OVERLAP
        ),
        beam_size=5,
        max_len=20,
        preparation="words",
        specials=_MESHED,
    ),
)
_add(
    {
        "grit": ("Attention to regions and to a grid side by side, gated (parallel heads)", {}),
        "grit/sequential": ("GRIT that attends to the grid, then to the regions", {"heads": "sequential"}),
        "grit/concatenated": ("GRIT with one attention to regions and grid", {"heads": "concatenated"}),
    },
    arguments={**_THREE, "dropout": 0.2},
    entry="zoo.models.grit:GRIT",
    paper="Nguyen, Suganuma, Okatani: GRIT: Faster and Better Image captioning Transformer Using Dual Visual Features, "
    "ECCV 2022 (arXiv:2207.09666)",
    year=2022,
    source="https://github.com/davidnvq/grit",
    licence="Creative Commons Attribution (headers; no licence file)",
    visual="regions+grid",
)

_PURET: dict[str, Any] = {
    "paper": "Wang, Xu, Sun: End-to-End Transformer Based Model for Image Captioning, AAAI 2022 (arXiv:2203.15350)",
    "year": 2022,
    "source": "https://github.com/232525/PureT",
    "licence": "none stated",
}
_WINDOWS = {"grid": 4, "window": 2}

_add(
    {"puret": ("Shifted windows around a global token, which every decoder layer reads first", {})},
    entry="zoo.models.puret:PureT",
    **_PURET,
    tiny={**_TINY, **_WINDOWS},
    released=ReleasedWeights(
        pretraining=trained_on_coco(SWIN_DATA, "Wang et al., AAAI 2022; the authors' repository 232525/PureT"),
        beam_size=5,
        max_len=17,
        backbone_tensors="backbone.",
    ),
)
_add(
    {"puret/global-once": ("PureT whose global token counts itself once, not once a window", {"global_once": True})},
    entry="zoo.models.puret:PureT",
    **_PURET,
    tiny={**_TINY, **_WINDOWS},
)
_add(
    {"puret/end-to-end": ("PureT on pixels, with Swin-L as a part of the model", {})},
    entry="zoo.models.end_to_end:EndToEnd",
    **_PURET,
    visual="pixels",
    arguments={"body": "puret", **SWIN, "visual_kind": "grid"},
    tiny={**_TINY, **_WINDOWS, **TINY_BACKBONE},
)

_X_LINEAR: dict[str, Any] = {
    "paper": "Pan, Yao, Li, Mei: X-Linear Attention Networks for Image Captioning, CVPR 2020 (arXiv:2003.14080)",
    "year": 2020,
    "source": "https://github.com/JDAI-CV/image-captioning",
    "licence": "none stated",
}
_RATES = {"dropout": 0.5, "attention_dropout": 0.1, "fusion_dropout": 0.3}

_add(
    {"x_lan": ("Bilinear attention over regions and channels, around a global vector and an LSTM", {})},
    entry="zoo.models.x_lan:XLAN",
    **_X_LINEAR,
    arguments={"d_model": 1024, "n_heads": 8, "n_encoder_layers": 4, "n_attention_layers": 1, **_RATES},
    tiny={name: _TINY[name] for name in ("d_model", "n_heads", "n_encoder_layers", "max_len")},
    released=ReleasedWeights(
        pretraining=trained_on_coco(
            _DETECTOR, "Pan et al., CVPR 2020; the repository JDAI-CV/image-captioning", _OVERLAP
        ),
        beam_size=3,
        max_len=17,
    ),
)
_add(
    {"x_transformer": ("A transformer of X-linear attention; queries are products of image and words", {})},
    entry="zoo.models.x_transformer:XTransformer",
    **_X_LINEAR,
    arguments={"d_model": 768, "d_ff": 3072, "n_heads": 8, "n_encoder_layers": 6, "n_decoder_layers": 6, **_RATES},
    released=ReleasedWeights(
        pretraining=trained_on_coco(
            _DETECTOR, "Pan et al., CVPR 2020; the repository JDAI-CV/image-captioning", _OVERLAP
        ),
        beam_size=2,
        max_len=17,
    ),
)
