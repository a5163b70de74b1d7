"""Cards of PureT: on features as its authors trained it, with the sane weight of the global token, and on pixels."""

from __future__ import annotations

from typing import Any

from zoo.registry import ModelCard, register_model

_ORIGIN: dict[str, Any] = {
    "paper": ("Wang, Xu, Sun: End-to-End Transformer Based Model for Image Captioning, AAAI 2022 (arXiv:2203.15350)"),
    "year": 2022,
    "source": "https://github.com/232525/PureT",
    "licence": "none stated",
}
_ENTRY = "zoo.models.puret:PureT"
_SIZES = {"d_model": 512, "d_ff": 2048, "n_heads": 8, "n_encoder_layers": 3, "n_decoder_layers": 3, "dropout": 0.1}
_TINY = {"d_model": 16, "d_ff": 32, "n_heads": 2, "n_encoder_layers": 2, "n_decoder_layers": 2, "max_len": 12}
_WINDOWS = {"grid": 4, "window": 2}

for _name, _summary, _arguments in (
    ("puret", "Shifted windows around a global token, which every decoder layer reads first", {}),
    ("puret/global-once", "PureT whose global token counts itself once, not once a window", {"global_once": True}),
):
    register_model(
        ModelCard(
            name=_name,
            entry=_ENTRY,
            summary=_summary,
            **_ORIGIN,
            visual="regions",
            arguments={**_SIZES, **_arguments},
            tiny={**_TINY, **_WINDOWS},
        )
    )

register_model(
    ModelCard(
        name="puret/end-to-end",
        entry="zoo.models.end_to_end:EndToEnd",
        summary="PureT on pixels, with Swin-L as a part of the model",
        **_ORIGIN,
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
