"""Cards of the captioners with X-linear attention: X-LAN and X-Transformer."""

from __future__ import annotations

from typing import Any

from zoo.registry import ModelCard, register_model

_ORIGIN: dict[str, Any] = {
    "paper": ("Pan, Yao, Li, Mei: X-Linear Attention Networks for Image Captioning, CVPR 2020 (arXiv:2003.14080)"),
    "year": 2020,
    "source": "https://github.com/JDAI-CV/image-captioning",
    "licence": "none stated",
    "visual": "regions",
}
_RATES = {"dropout": 0.5, "attention_dropout": 0.1, "fusion_dropout": 0.3}
_TINY = {"d_model": 16, "n_heads": 2, "n_encoder_layers": 2, "max_len": 12}

register_model(
    ModelCard(
        name="x_lan",
        entry="zoo.models.x_lan:XLAN",
        summary="Bilinear attention over regions and channels, around a global vector and an LSTM",
        **_ORIGIN,
        arguments={"d_model": 1024, "n_heads": 8, "n_encoder_layers": 4, "n_attention_layers": 1, **_RATES},
        tiny=_TINY,
    )
)
register_model(
    ModelCard(
        name="x_transformer",
        entry="zoo.models.x_transformer:XTransformer",
        summary="A transformer of X-linear attention; queries are products of image and words",
        **_ORIGIN,
        arguments={"d_model": 768, "d_ff": 3072, "n_heads": 8, "n_encoder_layers": 6, "n_decoder_layers": 6, **_RATES},
        tiny={**_TINY, "d_ff": 32, "n_decoder_layers": 2},
    )
)
