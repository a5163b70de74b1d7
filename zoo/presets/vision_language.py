"""Cards of vision-language models from the transformers library: pretrained, and small ones trained from scratch."""

from __future__ import annotations

from typing import Any

from zoo.registry import ModelCard, register_model

_SIZES = {"d_model": 16, "d_ff": 32, "n_heads": 2, "n_encoder_layers": 1, "n_decoder_layers": 2, "max_len": 12}
_TINY: dict[str, Any] = {**_SIZES, "image_size": 32, "dropout": 0.0}
_SCRATCH = {"image_size": 96}

_MODELS: dict[str, dict[str, Any]] = {
    "git": {
        "entry": "zoo.models.git:Git",
        "hub": "microsoft/git-base-coco",
        "paper": "Wang et al.: GIT: A Generative Image-to-text Transformer for Vision and Language, TMLR 2022",
        "year": 2022,
        "source": "https://github.com/microsoft/GenerativeImage2Text",
        "licence": "MIT",
    },
    "blip": {
        "entry": "zoo.models.blip:Blip",
        "hub": "Salesforce/blip-image-captioning-base",
        "paper": "Li et al.: BLIP: Bootstrapping Language-Image Pre-training, ICML 2022",
        "year": 2022,
        "source": "https://github.com/salesforce/BLIP",
        "licence": "BSD-3-Clause",
    },
    "vit_gpt2": {
        "entry": "zoo.models.vit_gpt2:VitGpt2",
        "hub": "nlpconnect/vit-gpt2-image-captioning",
        "paper": "Dosovitskiy et al.: An Image is Worth 16x16 Words, ICLR 2021; Radford et al.: GPT-2, 2019",
        "year": 2021,
        "source": "https://github.com/huggingface/transformers",
        "licence": "Apache-2.0",
    },
}

for _name, _about in _MODELS.items():
    _hub = _about.pop("hub")
    for _variant, _summary in (
        ("pretrained", f"{_hub}, without training here"),
        ("finetuned", f"{_hub}, trained further"),
    ):
        register_model(
            ModelCard(f"{_name}/{_variant}", summary=_summary, visual="pixels", tiny=_TINY, hub=_hub, **_about)
        )
    register_model(
        ModelCard(
            f"{_name}/small",
            summary="the architecture at a small size, trained from scratch on pixels",
            visual="pixels",
            arguments=_SCRATCH,
            tiny=_TINY,
            in_all=True,
            **_about,
        )
    )
