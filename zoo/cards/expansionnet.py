"""Cards of ExpansionNet v1 and v2, of every row of their ablation tables, and of their baselines."""

from typing import Any

from zoo.card import ModelCard, ReleasedWeights, trained_on_coco, variants

CARDS: list[ModelCard] = []
_V2_PAPER = (
    "Hu, Cavicchioli, Capotondi: Exploiting Multiple Sequence Lengths in Fast End to End Training for Image "
    "Captioning, IEEE Big Data 2023 (arXiv:2208.06551)"
)
_V2_CODE = "https://github.com/jchenghu/ExpansionNet_v2"
_V2: dict[str, Any] = {"paper": _V2_PAPER, "year": 2022, "source": _V2_CODE, "licence": "MIT", "visual": "grid"}
_V1: dict[str, Any] = {
    "paper": "Hu, Cavicchioli, Capotondi: ExpansionNet: exploring the sequence length bottleneck in the Transformer "
    "for Image Captioning, 2022 (arXiv:2207.03327)",
    "year": 2022,
    "source": "https://github.com/jchenghu/ExpansionNet",
    "licence": "none stated",
    "visual": "regions",
}
_SIZES = {"d_model": 512, "d_ff": 2048, "n_heads": 8, "n_encoder_layers": 3, "n_decoder_layers": 3, "dropout": 0.3}
_TINY = {"d_model": 16, "d_ff": 32, "n_heads": 2, "n_encoder_layers": 2, "n_decoder_layers": 2, "max_len": 12}
_REGIONS = {"visual_kind": "regions"}
_NO_REDUCE = {"encoder_reduce": False, "decoder_reduce": False}
SWIN = {"backbone": "swin_large_patch4_window12_384", "drop_path": 0.1}
TINY_BACKBONE: dict[str, Any] = {
    "backbone": "resnet10t",
    "backbone_options": {"channels": (8, 8, 8, 16), "stem_width": 8, "output_stride": 8},  # a grid even of 32 x 32
    "drop_path": 0.0,
}
SWIN_DATA = "ImageNet-22k with labels (Swin-L, its backbone)"
_RELEASED_V2 = ReleasedWeights(
    pretraining=trained_on_coco(
        SWIN_DATA, "Hu et al., IEEE Big Data 2023, Section IV-A; the authors' repository jchenghu/ExpansionNet_v2"
    ),
    beam_size=5,
    length_penalty=1.0,
    count_bos=True,
    cut_unfinished=True,
    preparation="expansionnet",
    backbone_tensors="swin_transf.",
    interpolation="bilinear",
)
_BLOCKS = (32, 64, 128, 256, 512)

_V2_ROWS: dict[str, tuple[str, tuple[int, ...], int]] = {
    # variant: (tables, static groups or none, N_E of the decoder or 0); arXiv numbers its tables, Big Data's are Roman
    "static-16": ("Tables I, VI", (16,), 0),
    "static-32": ("Tables I, VI", (32,), 0),
    "static-64": ("Tables I, VI", (64,), 0),
    "dynamic-4": ("Tables I, VI", (), 4),
    "dynamic-8": ("Tables I, VI", (), 8),
    "dynamic-16": ("Tables I, VI", (), 16),
    "static-64-dynamic-16": ("Tables I, VI, 2", (64,), 16),
    "static-128x5-dynamic-16": ("Tables I, VI, 2", (128,) * 5, 16),
    "static-256x5-dynamic-16": ("Tables I, VI", (256,) * 5, 16),
    "static-384x5-dynamic-16": ("Table 2", (384,) * 5, 16),
    "static-512x5-dynamic-16": ("Tables I, VI, 2", (512,) * 5, 16),
    "static-8-to-256-dynamic-16": ("Table 2", (8, 16, 32, 64, 96, 128, 256), 16),
    "static-16-to-320-dynamic-16": ("Table 2", (16, 32, 64, 128, 196, 256, 320), 16),
    "static-128-to-512-dynamic-16": ("Table 2", (128, 256, 384, 512), 16),
}
_V1_ROWS: dict[str, tuple[tuple[int, ...], int, int]] = {
    # variant of v1's Table 3: (static groups or none, N_E of a dynamic encoder or 0, N_E of the decoder or 0)
    "static-64": ((64,), 0, 0),
    "dynamic-encoder-1": ((), 1, 0),
    "dynamic-encoder-8": ((), 8, 0),
    "dynamic-encoder-16": ((), 16, 0),
    "static-64-dynamic-1": ((64,), 0, 1),
    "static-64-dynamic-8": ((64,), 0, 8),
    "static-64-dynamic-16": ((64,), 0, 16),
}


def _mixers(groups: tuple[int, ...], encoder_length: int, decoder_length: int) -> dict[str, Any]:
    """The constructor's choice of mixers, with the lengths that this choice uses."""
    arguments: dict[str, Any] = {
        "encoder": "static" if groups else "dynamic" if encoder_length else "self_attention",
        "decoder": "dynamic" if decoder_length else "self_attention",
    }
    if groups:
        arguments["static_lengths"] = groups
    if encoder_length or decoder_length:
        arguments["dynamic_length"] = encoder_length or decoder_length
    return arguments


def _describe(groups: tuple[int, ...], encoder_length: int, decoder_length: int) -> str:
    encoder = decoder = "self-attention"
    if len(set(groups)) < len(groups):
        encoder = f"static G={{{groups[0]}}}x{len(groups)}"
    elif groups:
        encoder = f"static G={{{','.join(map(str, groups))}}}"
    elif encoder_length:
        encoder = f"dynamic N_E={encoder_length}"
    if decoder_length:
        decoder = f"dynamic N_E={decoder_length}"
    return f"{encoder}; {decoder}"


def _tiny(arguments: dict[str, Any]) -> dict[str, Any]:
    """Lengths of unit-test size; one group stays one group."""
    tiny: dict[str, Any] = dict(_TINY)
    if "static_lengths" in arguments:
        tiny["static_lengths"] = (4,) if len(arguments["static_lengths"]) == 1 else (2, 4, 3)
    if "dynamic_length" in arguments:
        tiny["dynamic_length"] = 3
    return tiny


def _small(arguments: dict[str, Any]) -> dict[str, Any]:
    """Lengths for a small run: an eighth of each row's, but of the full model three groups, shorter than those."""
    small: dict[str, Any] = {}
    if "static_lengths" in arguments:
        groups = arguments["static_lengths"]
        small["static_lengths"] = (8, 16, 32) if groups == _BLOCKS else tuple(max(1, length // 8) for length in groups)
    if "dynamic_length" in arguments:
        small["dynamic_length"] = max(1, arguments["dynamic_length"] // 2)
    return small


def _add(name: str, summary: str, origin: dict[str, Any], arguments: dict[str, Any]) -> None:
    CARDS.extend(
        variants(
            {name: (summary, arguments)},
            entry="zoo.models.expansionnet:ExpansionNet",
            **origin,
            arguments=_SIZES,
            tiny=_tiny(arguments),
            small=_small(arguments),
        )
    )


_V2_FULL = _mixers(_BLOCKS, 0, 16)
_add(
    "expansionnet_v2",
    "Block static expansion in the encoder, dynamic expansion in the decoder",
    {**_V2, "released": _RELEASED_V2},
    _V2_FULL,
)
_add(
    "expansionnet_v2/no-reduce", "ExpansionNet v2 without the layers that fuse a stack", _V2, {**_V2_FULL, **_NO_REDUCE}
)
for _name, (_tables, _groups, _length) in _V2_ROWS.items():
    _summary = f"{_tables}: {_describe(_groups, 0, _length)}"
    _add(f"expansionnet_v2/{_name}", _summary, _V2, _mixers(_groups, 0, _length))

CARDS.append(
    ModelCard(
        name="expansionnet_v2/end-to-end",
        entry="zoo.models.end_to_end:EndToEnd",
        summary="ExpansionNet v2 on pixels, with Swin-L as a part of the model",
        **{**_V2, "visual": "pixels"},
        arguments={"body": "expansionnet_v2", **SWIN},
        tiny={**_tiny(_V2_FULL), **TINY_BACKBONE},
        small=_small(_V2_FULL),
    )
)

_V1_FULL = {**_REGIONS, **_mixers((64,), 0, 16)}
_RELEASED = {**_V1_FULL, "d_model": 768}
_add("expansionnet_v1", "Static expansion of 64 in the encoder, dynamic of 16 in the decoder", _V1, _V1_FULL)
_add("expansionnet_v1/released", "ExpansionNet v1 at the released size, d_model 768", _V1, _RELEASED)
_add(
    "expansionnet_v1/released-no-reduce",
    "The released size without the layers that fuse a stack",
    _V1,
    {**_RELEASED, **_NO_REDUCE},
)
for _name, _row in _V1_ROWS.items():
    _summary = f"Table 3, without reduce layers: {_describe(*_row)}"
    _add(f"expansionnet_v1/{_name}", _summary, _V1, {**_REGIONS, **_mixers(*_row), **_NO_REDUCE})
_add(
    "expansionnet_v1/baseline",
    "Table 3, baseline: a transformer of 6 + 6 layers on regions",
    _V1,
    {**_REGIONS, **_mixers((), 0, 0), "n_encoder_layers": 6, "n_decoder_layers": 6},
)

_add(
    "transformer_base",
    "Pre-norm transformer, the baseline of the ExpansionNet v2 paper",
    {
        **_V2,
        "paper": f"Vaswani et al.: Attention Is All You Need, NeurIPS 2017; sizes as the baseline of {_V2_PAPER}",
        "year": 2017,
    },
    _mixers((), 0, 0),
)
_add(
    "blind",
    "The decoder of transformer_base without an image: a baseline",
    {
        **_V2,
        "paper": "None: a language model of the captions, after Vaswani et al., NeurIPS 2017",
        "year": 2017,
        "visual": "none",
    },
    {"encoder": "none", "decoder": "self_attention"},
)
