"""Cards of ExpansionNet, of the transformer that its ablations start from, and of the image-blind floor."""

from __future__ import annotations

from zoo.registry import ModelCard, register_model

_ENTRY = "zoo.models.expansionnet:ExpansionNet"
_V2 = (
    "Hu, Cavicchioli, Capotondi: Exploiting Multiple Sequence Lengths in Fast End to End Training for Image "
    "Captioning, IEEE Big Data 2023 (arXiv:2208.06551)"
)
_V2_CODE = "https://github.com/jchenghu/ExpansionNet_v2"
_SIZES = {"d_model": 512, "d_ff": 2048, "n_heads": 8, "n_encoder_layers": 3, "n_decoder_layers": 3, "dropout": 0.3}
_TINY = {"d_model": 16, "d_ff": 32, "n_heads": 2, "n_encoder_layers": 2, "n_decoder_layers": 2, "max_len": 12}
_TINY_EXPANSION = {**_TINY, "static_lengths": (2, 4, 3), "dynamic_length": 3}
_SMALL_EXPANSION = {"static_lengths": (8, 16, 32), "dynamic_length": 8}

register_model(
    ModelCard(
        name="expansionnet_v2",
        entry=_ENTRY,
        summary="Block static expansion in the encoder, dynamic expansion in the decoder",
        paper=_V2,
        year=2022,
        source=_V2_CODE,
        licence="MIT",
        visual="grid",
        arguments={
            **_SIZES,
            "encoder": "static",
            "decoder": "dynamic",
            "static_lengths": (32, 64, 128, 256, 512),
            "dynamic_length": 16,
        },
        tiny=_TINY_EXPANSION,
        small=_SMALL_EXPANSION,
    )
)

register_model(
    ModelCard(
        name="transformer_base",
        entry=_ENTRY,
        summary="Pre-norm transformer, the baseline of the ExpansionNet v2 paper",
        paper=f"Vaswani et al.: Attention Is All You Need, NeurIPS 2017; sizes as the baseline of {_V2}",
        year=2017,
        source=_V2_CODE,
        licence="MIT",
        visual="grid",
        arguments={**_SIZES, "encoder": "self_attention", "decoder": "self_attention"},
        tiny=_TINY,
    )
)

register_model(
    ModelCard(
        name="blind",
        entry=_ENTRY,
        summary="The decoder of transformer_base without an image: the floor to clear",
        paper="None: a language model of the captions, after Vaswani et al., NeurIPS 2017",
        year=2017,
        source=_V2_CODE,
        licence="MIT",
        visual="none",
        arguments={**_SIZES, "encoder": "none", "decoder": "self_attention"},
        tiny=_TINY,
    )
)
