"""Which printed rows are of a model of the zoo, by its name, and which a preset is the recipe of."""

from __future__ import annotations

from dataclasses import dataclass

from results.published.scores import PublishedScore


@dataclass(frozen=True, slots=True)
class Printed:
    """Rows of one model: those of the named variants and tables (empty: of all), and of one backbone."""

    model: str
    variants: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    backbone: str = ""

    def covers(self, score: PublishedScore) -> bool:
        """Whether a printed number is one of these rows'."""
        return (
            score.model == self.model
            and (not self.variants or score.variant in self.variants)
            and (not self.tables or score.table in self.tables)
            and self.backbone in {"", score.backbone}
        )


@dataclass(frozen=True, slots=True)
class PresetRecipe:
    """A preset of the paper track: the `digest` of the one that ships, and the printed `rows` that it is the recipe of.

    Those are rows of the paper that the preset reproduces, and rows of other papers that quote them. Where paper and
    released code differ the code counts, unless it is known to train another model than the printed one. A preset that
    follows other people's code has none of the paper's rows, one of some of the steps has the rows printed of those;
    `whose` says beside all other rows what it is.
    """

    digest: str
    rows: tuple[Printed, ...] = ()
    whose: str = "the recipe of other printed rows"

    def made(self, score: PublishedScore) -> bool:
        """Whether a printed number is of one of its rows."""
        return any(rows.covers(score) for rows in self.rows)


def _v2(variant: str) -> tuple[Printed, ...]:
    return (Printed("expansionnet_v2", (variant,)),)


def _v1(in_table_3: str, ablation: str = "") -> tuple[Printed, ...]:
    """Rows of the ablations: in Tables 4 and 5 the main model bears the name of one of Table 3."""
    rows = Printed("expansionnet_v1", (in_table_3,), tables=("Table 3",))
    return (rows, Printed("expansionnet_v1", (f"ablation; {ablation}; N=3",))) if ablation else (rows,)


def _image_transformer(variant: str) -> tuple[Printed, ...]:
    return (Printed("image_transformer", (f"baseline + {variant}",)),)


_V2_FULL = "static G={32, 64, 128, 256, 512}; dynamic NE=16"
_V2_BASE = "encoder baseline; decoder baseline; N_enc=N_dec=3; d=512; d_ff=2048"
_WITH_THREE = (Printed("image_transformer", ("M=3", "baseline + spatial encoding layers 1,2,3; M=3")),)

NAMES: dict[str, tuple[Printed, ...]] = {
    "expansionnet_v2": _v2(_V2_FULL),
    "expansionnet_v2/end-to-end": (Printed("expansionnet_v2", (_V2_FULL,), backbone="trained"),),
    "expansionnet_v2/static-16": _v2("static G={16}; decoder baseline"),
    "expansionnet_v2/static-32": _v2("static G={32}; decoder baseline"),
    "expansionnet_v2/static-64": _v2("static G={64}; decoder baseline"),
    "expansionnet_v2/dynamic-4": _v2("encoder baseline; dynamic NE=4"),
    "expansionnet_v2/dynamic-8": _v2("encoder baseline; dynamic NE=8"),
    "expansionnet_v2/dynamic-16": _v2("encoder baseline; dynamic NE=16"),
    "expansionnet_v2/static-64-dynamic-16": _v2("static G={64}; dynamic NE=16"),
    "expansionnet_v2/static-128x5-dynamic-16": _v2("static G={128, 128, 128, 128, 128}; dynamic NE=16"),
    "expansionnet_v2/static-256x5-dynamic-16": _v2("static G={256, 256, 256, 256, 256}; dynamic NE=16"),
    "expansionnet_v2/static-384x5-dynamic-16": _v2("static G={384, 384, 384, 384, 384}; dynamic NE=16"),
    "expansionnet_v2/static-512x5-dynamic-16": _v2("static G={512, 512, 512, 512, 512}; dynamic NE=16"),
    "expansionnet_v2/static-8-to-256-dynamic-16": _v2("static G={8, 16, 32, 64, 96, 128, 256}; dynamic NE=16"),
    "expansionnet_v2/static-16-to-320-dynamic-16": _v2("static G={16, 32, 64, 128, 196, 256, 320}; dynamic NE=16"),
    "expansionnet_v2/static-128-to-512-dynamic-16": _v2("static G={128, 256, 384, 512}; dynamic NE=16"),
    "expansionnet_v1": (Printed("expansionnet_v1", ("static NE=64; dynamic NE=16",), tables=("Table 4", "Table 5")),),
    "expansionnet_v1/static-64": _v1("static NE=64; decoder baseline"),
    "expansionnet_v1/static-64-dynamic-1": _v1("static NE=64; dynamic NE=1", "static NE=64; dynamic NE=1"),
    "expansionnet_v1/static-64-dynamic-8": _v1("static NE=64; dynamic NE=8"),
    "expansionnet_v1/static-64-dynamic-16": _v1("static NE=64; dynamic NE=16", "static NE=64; dynamic NE=16"),
    "expansionnet_v1/dynamic-encoder-1": _v1("encoder dynamic NE=1; decoder baseline"),
    "expansionnet_v1/dynamic-encoder-8": _v1("encoder dynamic NE=8; decoder baseline"),
    "expansionnet_v1/dynamic-encoder-16": _v1("encoder dynamic NE=16; decoder baseline"),
    "expansionnet_v1/baseline": (
        Printed(
            "transformer_base",
            ("Base (ours); N=6; d=512; d_ff=2048; 8 heads", "encoder baseline; decoder baseline; N=6"),
        ),
    ),
    "transformer_base": (Printed("transformer_base", (_V2_BASE,)),),
    "transformer_aoa": (Printed("transformer_aoa"),),
    "object_relation_transformer": (Printed("vorn"),),
    "adaptive_attention": (Printed("adaptive"),),
    "aoanet": (Printed("aoanet", ("",)),),
    "image_transformer": _WITH_THREE,
    "image_transformer/official-graph": _WITH_THREE,
    "image_transformer/baseline": (Printed("aoanet", ("baseline (AoA)",)),),
    "image_transformer/layer-1": _image_transformer("spatial encoding layer 1"),
    "image_transformer/layer-2": _image_transformer("spatial encoding layer 2"),
    "image_transformer/layer-3": _image_transformer("spatial encoding layer 3"),
    "image_transformer/no-spatial": _image_transformer("encoding layers 1,2,3 without spatial relations"),
    "image_transformer/sub-1": _image_transformer("spatial encoding layers 1,2,3"),
    "image_transformer/sub-2": _image_transformer("spatial encoding layers 1,2,3; M=2"),
    "image_transformer/sub-4": _image_transformer("spatial encoding layers 1,2,3; M=4"),
    "updown": (Printed("updown", ("",)),),
    "att2all": (Printed("att2all"),),
    "show_tell/fc": (Printed("show_tell_lstm"),),
    "show_attend_tell": (Printed("show_attend_tell"),),
    "cgru": (Printed("cgru"),),
    "dlct": (Printed("dlct"),),
    "gcn_lstm": (Printed("gcn_lstm"),),
    "get": (Printed("get"),),
    "sgae": (Printed("sgae"),),
    "sgae/sentences": (Printed("sgae"),),
    "rstnet": (Printed("rstnet"),),
    "x_lan": (Printed("x_lan"),),
    "x_transformer": (Printed("x_transformer"),),
    "puret": (Printed("puret"),),
    "puret/end-to-end": (Printed("puret"),),
}
"""Models of the zoo that have printed numbers; the others have none."""

_V1_ABLATIONS = ("ablation; static NE=64; dynamic NE=1; N=3", "ablation; static NE=64; dynamic NE=16; N=3")

RECIPES: dict[str, PresetRecipe] = {
    "aoanet-paper": PresetRecipe("0f97c4bb90b6", (Printed("aoanet", ("",)),)),
    "cgru-paper": PresetRecipe("608e88f3c726", (Printed("cgru"),)),
    "dlct-paper": PresetRecipe(
        "57697645ea22", whose="that of the released code, but for how captions become words, and their order"
    ),
    "expansionnet-v1-ablation": PresetRecipe(
        "de223e638e7a",
        (
            Printed("expansionnet_v1", tables=("Table 3",)),
            Printed("expansionnet_v1", _V1_ABLATIONS),
            *NAMES["expansionnet_v1/baseline"],
        ),
    ),
    "expansionnet-v1-paper": PresetRecipe(
        "e298cc95c827", whose="that of the released code, whose model is wider than the paper's"
    ),
    "expansionnet-v2-ablation": PresetRecipe(
        "b879bcecff5d",
        (
            Printed("expansionnet_v2", tables=("Table 2", "Table I"), backbone="frozen"),
            Printed("transformer_base", (_V2_BASE,)),
        ),
        "the first of the paper's four steps",
    ),
    "expansionnet-v2-paper": PresetRecipe("7467ad63fb99", (Printed("expansionnet_v2", backbone="trained"),)),
    "expansionnet-v2-paper-frozen": PresetRecipe(
        "bb0f42fc1406",
        (Printed("expansionnet_v2", backbone="frozen"), Printed("transformer_base", (_V2_BASE,))),
        "two of the paper's four steps",
    ),
    "gcn-lstm-paper": PresetRecipe("bc29c75110e6", whose="that of X-modaler for a semantic graph, not the paper's"),
    "grit-paper": PresetRecipe("8f4a0dee1471", whose="that of the released code's caption head, on other features"),
    "image-transformer-ablation": PresetRecipe(
        "6a48c62e47c7",
        (
            Printed("image_transformer", tables=("Table 3",)),
            Printed("aoanet", ("baseline (AoA)",), tables=("Table 3",)),
        ),
        "cross-entropy alone",
    ),
    "image-transformer-paper": PresetRecipe(
        "22b4fc370116", (Printed("image_transformer"), Printed("aoanet", ("baseline (AoA)",)))
    ),
    "m2-paper": PresetRecipe(
        "83f0330ebe6a",
        whose="that of the released code, but for how captions become words; no row of it is printed here",
    ),
    "noam-paper": PresetRecipe("bbfedf13478c", whose="that of ImageCaptioning.pytorch, not the paper's"),
    "object-relation-luo": PresetRecipe(
        "aa51d58ed2e0", whose="that of Luo's Transformer in ImageCaptioning.pytorch, not the paper's"
    ),
    "puret-paper": PresetRecipe("37f57d1ca127", (Printed("puret"),)),
    "rstnet-paper": PresetRecipe(
        "fc42d24bcd22",
        whose="that of the released code, but for a language signal that learns, and how captions become words",
    ),
    "sgae-paper": PresetRecipe(
        "bf448855e57f",
        whose="that of the released code, but for the images that it trains on, and how its rewards are weighed",
    ),
    "updown-paper": PresetRecipe("cd87372034be", whose="that of ImageCaptioning.pytorch, not the paper's"),
    "x-lan-paper": PresetRecipe("3b50dfe4df65", (Printed("x_lan"),)),
    "x-transformer-paper": PresetRecipe("8d38d5b66e05", (Printed("x_transformer"),)),
}
"""Presets of the paper track. Digests are those of `harness.config.load.shipped_preset`: a preset that is changed
needs its new one here, and runs by the preset as it was are then no longer taken for runs by the paper's recipe."""
