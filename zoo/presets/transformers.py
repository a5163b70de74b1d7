"""Cards of the transformers on regions and grids: the plain one, object relations, meshed memory and what followed it
(GET, RSTNet, DLCT, GRIT), PureT, and the X-linear attention of X-LAN and X-Transformer.
"""

from __future__ import annotations

from typing import Any

from zoo.registry import ModelCard, register_model, register_variants

_SIZES = {"d_model": 512, "d_ff": 2048, "n_heads": 8, "dropout": 0.1}
_TINY = {"d_model": 16, "d_ff": 32, "n_heads": 2, "n_encoder_layers": 2, "n_decoder_layers": 2, "max_len": 12}
_SIX: dict[str, Any] = {**_SIZES, "n_encoder_layers": 6, "n_decoder_layers": 6, "region_dropout": 0.5}
_THREE: dict[str, Any] = {**_SIZES, "n_encoder_layers": 3, "n_decoder_layers": 3}

register_model(
    ModelCard(
        name="transformer",
        entry="zoo.models.transformer:Transformer",
        summary="Pre-norm transformer of 6 + 6 layers on regions",
        paper=(
            "Vaswani et al.: Attention Is All You Need, NeurIPS 2017; on images Sharma et al.: Conceptual Captions, "
            "ACL 2018"
        ),
        year=2017,
        source="https://github.com/ruotianluo/ImageCaptioning.pytorch",
        licence="MIT",
        visual="regions",
        arguments=_SIX,
        tiny=_TINY,
    )
)
register_model(
    ModelCard(
        name="object_relation_transformer",
        entry="zoo.models.transformer:ObjectRelationTransformer",
        summary="Transformer of 6 + 6 layers whose encoder weighs how boxes lie to each other",
        paper=(
            "Herdade, Kappeler, Boakye, Soares: Image Captioning: Transforming Objects into Words, NeurIPS 2019 "
            "(arXiv:1906.05963)"
        ),
        year=2019,
        source="https://github.com/yahoo/object_relation_transformer",
        licence="MIT",
        visual="regions",
        arguments=_SIX,
        tiny=_TINY,
    )
)
register_model(
    ModelCard(
        name="m2",
        entry="zoo.models.m2:MeshedMemoryTransformer",
        summary="Meshed memory: learned slots in the encoder, gates to all its levels",
        paper=(
            "Cornia, Stefanini, Baraldi, Cucchiara: Meshed-Memory Transformer for Image Captioning, CVPR 2020 "
            "(arXiv:1912.08226)"
        ),
        year=2020,
        source="https://github.com/aimagelab/meshed-memory-transformer",
        licence="BSD-3-Clause",
        visual="regions",
        arguments={**_THREE, "memory_slots": 40},
        tiny={**_TINY, "memory_slots": 3},
    )
)
register_variants(
    {
        "get": ("Global token through gated attention, fused over layers by an LSTM", {}),
        "get/no-fusion": ("GET without its LSTM over layers, as the released code by default", {"fusion": False}),
    },
    arguments=_THREE,
    entry="zoo.models.get:GlobalEnhancedTransformer",
    paper=(
        "Ji, Luo, Sun, Chen, Luo, Wu, Gao, Ji: Improving Image Captioning by Leveraging Intra- and Inter-layer Global "
        "Representation in Transformer Network, AAAI 2021 (arXiv:2012.07061)"
    ),
    year=2021,
    source="https://github.com/luo3300612/image-captioning-DLCT",
    licence="BSD-3-Clause",
    visual="regions",
    tiny=_TINY,
)
register_model(
    ModelCard(
        name="rstnet",
        entry="zoo.models.rstnet:RSTNet",
        summary="Geometry of grid cells, and a last layer that may look at language instead",
        paper=(
            "Zhang, Sun, Luo, Ji, Zhou, Wu, Huang, Ji: RSTNet: Captioning with Adaptive Attention on Visual and "
            "Non-Visual Words, CVPR 2021"
        ),
        year=2021,
        source="https://github.com/zhangxuying1004/RSTNet",
        licence="BSD-3-Clause",
        visual="regions",
        arguments={**_THREE, "n_decoder_layers": 4},
        tiny=_TINY,
    )
)
register_model(
    ModelCard(
        name="dlct",
        entry="zoo.models.dlct:DualLevelTransformer",
        summary="Regions and a grid at once: each level whole, and of the other what it touches",
        paper=(
            "Luo, Ji, Sun, Cao, Wu, Huang, Lin, Ji: Dual-Level Collaborative Transformer for Image Captioning, AAAI "
            "2021 (arXiv:2101.06462)"
        ),
        year=2021,
        source="https://github.com/luo3300612/image-captioning-DLCT",
        licence="BSD-3-Clause",
        visual="regions+grid",
        arguments=_THREE,
        tiny=_TINY,
        small={"grid_side": 4},
    )
)
register_variants(
    {
        "grit": ("Attention to regions and to a grid side by side, gated (parallel heads)", {}),
        "grit/sequential": ("GRIT that attends to the grid, then to the regions", {"heads": "sequential"}),
        "grit/concatenated": ("GRIT with one attention to regions and grid", {"heads": "concatenated"}),
    },
    arguments={**_THREE, "dropout": 0.2},
    entry="zoo.models.grit:GRIT",
    paper=(
        "Nguyen, Suganuma, Okatani: GRIT: Faster and Better Image captioning Transformer Using Dual Visual Features, "
        "ECCV 2022 (arXiv:2207.09666)"
    ),
    year=2022,
    source="https://github.com/davidnvq/grit",
    licence="Creative Commons Attribution (headers; no licence file)",
    visual="regions+grid",
    tiny=_TINY,
)

_PURET: dict[str, Any] = {
    "paper": ("Wang, Xu, Sun: End-to-End Transformer Based Model for Image Captioning, AAAI 2022 (arXiv:2203.15350)"),
    "year": 2022,
    "source": "https://github.com/232525/PureT",
    "licence": "none stated",
}
_WINDOWS = {"grid": 4, "window": 2}

register_variants(
    {
        "puret": ("Shifted windows around a global token, which every decoder layer reads first", {}),
        "puret/global-once": ("PureT whose global token counts itself once, not once a window", {"global_once": True}),
    },
    arguments=_THREE,
    entry="zoo.models.puret:PureT",
    **_PURET,
    visual="regions",
    tiny={**_TINY, **_WINDOWS},
)
register_model(
    ModelCard(
        name="puret/end-to-end",
        entry="zoo.models.end_to_end:EndToEnd",
        summary="PureT on pixels, with Swin-L as a part of the model",
        **_PURET,
        visual="pixels",
        arguments={
            "body": "puret",
            "backbone": "swin_large_patch4_window12_384",
            "drop_path": 0.1,
            "visual_kind": "grid",
        },
        # A stride of 8, so that even images of 32 x 32 give a grid.
        tiny={
            **_TINY,
            **_WINDOWS,
            "backbone": "resnet10t",
            "backbone_options": {"channels": (8, 8, 8, 16), "stem_width": 8, "output_stride": 8},
            "drop_path": 0.0,
        },
    )
)

_X_LINEAR: dict[str, Any] = {
    "paper": ("Pan, Yao, Li, Mei: X-Linear Attention Networks for Image Captioning, CVPR 2020 (arXiv:2003.14080)"),
    "year": 2020,
    "source": "https://github.com/JDAI-CV/image-captioning",
    "licence": "none stated",
    "visual": "regions",
}
_RATES = {"dropout": 0.5, "attention_dropout": 0.1, "fusion_dropout": 0.3}

register_model(
    ModelCard(
        name="x_lan",
        entry="zoo.models.x_lan:XLAN",
        summary="Bilinear attention over regions and channels, around a global vector and an LSTM",
        **_X_LINEAR,
        arguments={"d_model": 1024, "n_heads": 8, "n_encoder_layers": 4, "n_attention_layers": 1, **_RATES},
        tiny={name: _TINY[name] for name in ("d_model", "n_heads", "n_encoder_layers", "max_len")},
    )
)
register_model(
    ModelCard(
        name="x_transformer",
        entry="zoo.models.x_transformer:XTransformer",
        summary="A transformer of X-linear attention; queries are products of image and words",
        **_X_LINEAR,
        arguments={"d_model": 768, "d_ff": 3072, "n_heads": 8, "n_encoder_layers": 6, "n_decoder_layers": 6, **_RATES},
        tiny=_TINY,
    )
)
