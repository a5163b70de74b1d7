"""Cards of the Image Transformer with its ablations."""

from typing import Any

from zoo.card import ModelCard, variants

CARDS: list[ModelCard] = []
_SIZES = {"d_model": 1024, "n_heads": 8, "dropout": 0.5}
_TABLE_3: dict[str, tuple[str, dict[str, Any]]] = {
    # Rows of Table 3. Those about the encoder have M = 1; a row that names no layers has all three wide. The printed
    # baseline is AoANet with its six layers (`aoanet`), as in the authors' code; this one has the three of the others.
    "baseline": ("three layers of AoANet, none wide; M=1", {"wide_layers": (), "sub_transformers": 1}),
    "layer-1": ("spatial graph in layer 1; M=1", {"wide_layers": (1,), "sub_transformers": 1}),
    "layer-2": ("spatial graph in layer 2; M=1", {"wide_layers": (2,), "sub_transformers": 1}),
    "layer-3": ("spatial graph in layer 3; M=1", {"wide_layers": (3,), "sub_transformers": 1}),
    "no-spatial": ("three wide layers that see no graph; M=1", {"spatial": False, "sub_transformers": 1}),
    "sub-1": ("spatial graph in layers 1, 2, 3; M=1", {"sub_transformers": 1}),
    "sub-2": ("spatial graph in layers 1, 2, 3; M=2", {"sub_transformers": 2}),
    "sub-4": ("spatial graph in layers 1, 2, 3; M=4", {"sub_transformers": 4}),
}


def _tiny(arguments: dict[str, Any]) -> dict[str, Any]:
    """Unit-test size: two layers, and variants that differ in a number alone become one."""
    tiny: dict[str, Any] = {"d_model": 16, "d_word": 12, "n_heads": 2, "n_encoder_layers": 2, "max_len": 12}
    if arguments.get("wide_layers"):
        tiny["wide_layers"] = (1,)
    if arguments.get("sub_transformers", 1) > 1:
        tiny["sub_transformers"] = 2
    return tiny


def _add(name: str, summary: str, arguments: dict[str, Any]) -> None:
    CARDS.extend(
        variants(
            {name: (summary, arguments)},
            entry="zoo.models.image_transformer:ImageTransformer",
            paper="He, Liao, Tavakoli, Yang, Rosenhahn, Pugeault: Image Captioning through Image Transformer, "
            "ACCV 2020 (arXiv:2004.14231)",
            year=2020,
            source="https://github.com/wtliao/ImageTransformer",
            licence="none stated",
            visual="regions",
            arguments=_SIZES,
            tiny=_tiny(arguments),
            # A layer's number means something only where there are as many as the paper counts.
            small={"n_encoder_layers": 3} if arguments.get("wide_layers") else {},
        )
    )


_FULL = {"n_encoder_layers": 3, "wide_layers": None, "sub_transformers": 3}
_add(
    "image_transformer",
    "AoANet along a spatial graph of regions; M=3 sub-transformers in the decoder",
    _FULL,
)
_add(
    "image_transformer/official-graph",
    "Image Transformer on the graph as released: intersections not clamped at zero",
    {**_FULL, "graph": "official"},
)
for _name, (_row, _arguments) in _TABLE_3.items():
    _add(f"image_transformer/{_name}", f"Table 3: {_row}", {**_FULL, **_arguments})
    if _arguments.get("wide_layers") != () and _arguments.get("spatial", True):
        _add(
            f"image_transformer/{_name}-official-graph",
            f"Table 3: {_row}; on the graph as released",
            {**_FULL, **_arguments, "graph": "official"},
        )
