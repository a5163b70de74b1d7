"""Cards of the transformers on region features: the plain one, meshed memory, object relations."""

from __future__ import annotations

from typing import Any

from zoo.registry import ModelCard, register_model

_SIZES = {"d_model": 512, "d_ff": 2048, "n_heads": 8, "dropout": 0.1}
_TINY = {"d_model": 16, "d_ff": 32, "n_heads": 2, "n_encoder_layers": 2, "n_decoder_layers": 2, "max_len": 12}
_SIX: dict[str, Any] = {**_SIZES, "n_encoder_layers": 6, "n_decoder_layers": 6, "region_dropout": 0.5}

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
        arguments={**_SIZES, "n_encoder_layers": 3, "n_decoder_layers": 3, "memory_slots": 40},
        tiny={**_TINY, "memory_slots": 3},
    )
)
