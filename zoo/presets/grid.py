"""Cards of the transformers that followed meshed memory on regions and grids: GET, RSTNet, DLCT and GRIT."""

from __future__ import annotations

from typing import Any

from zoo.registry import ModelCard, register_model

_SIZES: dict[str, Any] = {
    "d_model": 512, "d_ff": 2048, "n_heads": 8, "n_encoder_layers": 3, "n_decoder_layers": 3, "dropout": 0.1,
}  # fmt: skip
_TINY = {"d_model": 16, "d_ff": 32, "n_heads": 2, "n_encoder_layers": 2, "n_decoder_layers": 2, "max_len": 12}
_GET_ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "get": ("Global token through gated attention, fused over layers by an LSTM", {}),
    "get/no-fusion": ("GET without its LSTM over layers, as the released code by default", {"fusion": False}),
}

for _name, (_summary, _arguments) in _GET_ROWS.items():
    register_model(
        ModelCard(
            name=_name,
            entry="zoo.models.get:GlobalEnhancedTransformer",
            summary=_summary,
            paper=(
                "Ji, Luo, Sun, Chen, Luo, Wu, Gao, Ji: Improving Image Captioning by Leveraging Intra- and "
                "Inter-layer Global Representation in Transformer Network, AAAI 2021 (arXiv:2012.07061)"
            ),
            year=2021,
            source="https://github.com/luo3300612/image-captioning-DLCT",
            licence="BSD-3-Clause",
            visual="regions",
            arguments={**_SIZES, **_arguments},
            tiny=_TINY,
        )
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
        arguments={**_SIZES, "n_decoder_layers": 4},
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
        arguments=_SIZES,
        tiny=_TINY,
        small={"grid_side": 4},
    )
)

_GRIT_ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "grit": ("Attention to regions and to a grid side by side, gated (parallel heads)", {}),
    "grit/sequential": ("GRIT that attends to the grid, then to the regions", {"heads": "sequential"}),
    "grit/concatenated": ("GRIT with one attention to regions and grid", {"heads": "concatenated"}),
}

for _name, (_summary, _arguments) in _GRIT_ROWS.items():
    register_model(
        ModelCard(
            name=_name,
            entry="zoo.models.grit:GRIT",
            summary=_summary,
            paper=(
                "Nguyen, Suganuma, Okatani: GRIT: Faster and Better Image captioning Transformer Using Dual Visual "
                "Features, ECCV 2022 (arXiv:2207.09666)"
            ),
            year=2022,
            source="https://github.com/davidnvq/grit",
            licence="Creative Commons Attribution (headers; no licence file)",
            visual="regions+grid",
            arguments={**_SIZES, "dropout": 0.2, **_arguments},
            tiny=_TINY,
        )
    )
