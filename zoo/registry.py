"""The model registry: model cards, and `create_model`. Imports no torch until a model is created."""

from __future__ import annotations

import difflib
import fnmatch
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from zoo.errors import ZooError

if TYPE_CHECKING:
    from zoo.captioner import Captioner

VisualKind = Literal["grid", "regions", "regions+grid", "pooled", "pixels", "none"]
"""What a model sees of an image."""
GraphKind = Literal["none", "words", "labels"]
"""What numbers stand for in the scene graph that a model reads: words of its embedding, or labels of edges."""

LARGEST: Final[Mapping[str, int]] = {
    "d_model": 2**16,
    "d_ff": 2**18,
    "n_heads": 2**10,
    "n_encoder_layers": 1_000,
    "n_decoder_layers": 1_000,
    "max_len": 10_000,
    "patch_size": 10_000,
}
"""The largest value of each size that is a whole number, each far above any published model's."""
SIZES: Final = (*LARGEST, "dropout")
_SHOWN = 40
_GIVEN_TO_ALL = {"visual_dim", *SIZES}

RESERVED = frozenset({"all", "auto", "human", "majority", "retrieval"})
"""Words that stand for something else where a model is named: all of them, the first of them, rows without a model."""
_NAME = re.compile(r"[a-z0-9][a-z0-9_]*(/[a-z0-9][a-z0-9_.-]*)?")
_cards: dict[str, ModelCard] = {}
_builtin = "unread"
_shipped: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Pretraining:
    """The pretraining data of a model's weights, as stated by papers and model cards.

    Attributes:
        data_sets: all data sets that any part was trained on, including texts and labels.
        captions: the captions, and their approximate number.
        captions_of: the data sets of these captions, such as `COCO`; empty if there are none.
        overlap: by evaluation data set, why some of its evaluation images may have been seen.
        source: where this is stated.
    """

    data_sets: tuple[str, ...]
    captions: str
    captions_of: tuple[str, ...]
    overlap: Mapping[str, str]
    source: str


NOT_DOCUMENTED = Pretraining((), "not documented", (), {}, "not documented")


@dataclass(frozen=True, slots=True)
class ModelCard:
    """Description of a model, available without building it.

    Attributes:
        name: `family` or `family/variant`, lower case.
        entry: "module:attribute" of the constructor, imported on creation; a plug-in may give the class itself.
        paper: authors, title, venue.
        visual: the kind of visual input with the preset's arguments.
        graph: the kind of scene graph that it reads beside regions (`zoo.captioner.VisualSpec`).
        arguments: the preset, as keyword arguments of the constructor.
        tiny: arguments on top of the preset that give a model small enough for unit tests.
        small: sizes outside the size contract (`SIZES`) for small runs, on top of the preset.
        in_all: whether `all` includes this variant.
        hub: for a pretrained model, the repository of its weights on the Hugging Face Hub; its constructor takes
            their `folder`, and has random weights without it.
        pretraining: training data of its weights before the run; None without pretraining.
        files: what its code reads besides its modules; `register_model` sets it.
    """

    name: str
    entry: str | Callable[..., Captioner]
    summary: str
    paper: str
    year: int
    source: str
    licence: str
    visual: VisualKind
    arguments: Mapping[str, Any] = field(default_factory=dict)
    tiny: Mapping[str, Any] = field(default_factory=dict)
    small: Mapping[str, Any] = field(default_factory=dict)
    in_all: bool = False
    hub: str = ""
    pretraining: Pretraining | None = None
    files: tuple[Path, ...] = ()
    graph: GraphKind = "none"

    @property
    def has_backbone(self) -> bool:
        """Whether the model owns a backbone and is a `zoo.HasBackbone`."""
        return "backbone" in self.arguments


def register_model(card: ModelCard, files: Iterable[str | Path] = ()) -> ModelCard:
    """Register a model; returns its card.

    Args:
        card: its description.
        files: what its code reads besides its modules, such as weights or a table of sizes: their contents are in the
            key of its runs. `files=[Path(__file__).with_name("sizes.json")]` names a file beside the module.

    Raises:
        ZooError: the name is taken, reserved or malformed, or a file is not there.
    """
    _read_builtin_cards()
    if not _NAME.fullmatch(card.name):
        raise ZooError(
            f"{card.name!r} is not a valid model name",
            "use lower-case letters, digits and _, and for a variant: family/variant",
        )
    if card.name in RESERVED:
        raise ZooError(f"{card.name!r} is no name for a model: it stands for something else", f"use my_{card.name}")
    if card.name in _cards:
        raise ZooError(f"a model named {card.name!r} is already registered", "choose another name")
    paths = tuple(Path(file).resolve() for file in files)
    for path in paths:
        if not path.is_file():
            raise ZooError(
                f"{card.name}: no such file: {path}", 'name one beside the module: Path(__file__).with_name("NAME")'
            )
    card = replace(card, files=paths)
    _cards[card.name] = card
    return card


def registered_cards() -> dict[str, ModelCard]:
    """The cards of all registered models, by name."""
    _read_builtin_cards()
    return dict(_cards)


def register_variants(
    rows: Mapping[str, tuple[str, Mapping[str, Any]]], *, arguments: Mapping[str, Any], **card: Any
) -> None:
    """Register models of one card but for name, summary, and arguments on top of those in common."""
    for name, (summary, own) in rows.items():
        register_model(ModelCard(name=name, summary=summary, arguments={**arguments, **own}, **card))


def list_models(pattern: str = "*") -> list[str]:
    """Names that match a shell pattern, sorted; `expansionnet*` finds variants too, since * also matches a slash."""
    _read_builtin_cards()
    return sorted(name for name in _cards if fnmatch.fnmatchcase(name, pattern))


def select_models(pattern: str) -> list[str]:
    """Names for one word of --models: `all`, a shell pattern, or a name.

    `all` selects every model that is not a variant, and variants with `in_all`. Patterns leave out models on pixels,
    which train their own backbone at many times the cost of the others: these must be named.
    """
    if pattern == "all":
        cards = map(model_card, list_models())
        return [card.name for card in cards if card.in_all or ("/" not in card.name and card.visual != "pixels")]
    return [name for name in list_models(pattern) if name == pattern or model_card(name).visual != "pixels"]


def model_card(name: str) -> ModelCard:
    """The card of one model; raises ZooError with similar names if it is unknown."""
    _read_builtin_cards()
    if name not in _cards:
        raise ZooError(f"there is no model named {name!r}", _nearest(name, _cards) or "`bench models` lists them all")
    return _cards[name]


def is_shipped(name: str) -> bool:
    """Whether a model is the zoo's own, which its tests hold to the laws of the interface; no plug-in's."""
    _read_builtin_cards()
    return name in _shipped


def create_model(name: str, *, vocab_size: int, visual_dim: int, **overrides: Any) -> Captioner:
    """Build a model: the card's preset, overridden by keyword arguments.

    Args:
        overrides: arguments of the model's constructor; `SIZES` that it does not have are ignored, and so is
            `visual_dim` for a model on pixels.

    Raises:
        ZooError: unknown name, unknown argument, or a value that the model refuses.
    """
    from zoo.captioner import Captioner

    card = model_card(name)
    constructor = _load_entry(card)
    accepted = inspect.signature(constructor).parameters
    arguments = {"visual_dim": visual_dim, **card.arguments, **overrides}
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in accepted.values()):
        arguments = {key: value for key, value in arguments.items() if key in accepted or key not in _GIVEN_TO_ALL}
        known = sorted(set(accepted) - {"vocab_size", "visual_dim"})
        for argument in arguments:
            if argument not in accepted:
                hint = _nearest(argument, known) or f"{name} takes {', '.join(known)}"
                raise ZooError(f"{name} has no argument {argument!r}", hint)
    check_sizes(arguments)
    for dimension, value in (("vocab_size", vocab_size), ("visual_dim", visual_dim)):
        if value < 0:
            raise ZooError(f"{dimension} must be at least 0, not {value}")
    try:
        model = constructor(vocab_size=vocab_size, **arguments)
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:  # sys.exit() too, of a plug-in: it would end the program without a word
        raise ZooError(f"the constructor of {name} raised {error!r}, no Exception") from error
    if not isinstance(model, Captioner):
        raise ZooError(f"the entry of {name} built a {type(model).__name__}, which is not a zoo.Captioner")
    if not is_shipped(name):
        _check_description(model, card)
    return model


def _check_description(model: Captioner, card: ModelCard) -> None:
    """ZooError where a model does not say what it is, or sees something else than its card promises the harness."""
    for attribute in ("visual", "vocab_size", "max_len"):
        if not hasattr(model, attribute):
            raise ZooError(
                f"the constructor of {card.name} sets no {attribute}",
                "set visual = VisualSpec(kind, channels), vocab_size and max_len",
            )
    for what, promised, seen in (("visual", card.visual, model.visual.kind), ("graph", card.graph, model.visual.graph)):
        if promised != seen:
            raise ZooError(
                f"the card of {card.name} says {what}={promised!r}, and its VisualSpec {seen!r}",
                "the harness brings what the card says: give both the same kind",
            )


def default_arguments(name: str) -> dict[str, Any]:
    """What a model is built with where nothing overrides it: its card's arguments, and its constructor's defaults.

    Raises:
        ZooError: unknown name, or an entry that cannot be loaded.
    """
    card = model_card(name)
    parameters = inspect.signature(_load_entry(card)).parameters.values()
    return {each.name: each.default for each in parameters if each.default is not each.empty} | dict(card.arguments)


def _load_entry(card: ModelCard) -> Callable[..., Captioner]:
    if not isinstance(card.entry, str):
        return card.entry
    module, _, attribute = card.entry.partition(":")
    try:
        constructor: Callable[..., Captioner] = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ZooError(f"the entry {card.entry!r} of model {card.name!r} cannot be loaded: {error}") from error
    return constructor


def _read_builtin_cards() -> None:
    """Import every module of `zoo.cards` once; they call `register_model`, which must not recurse here."""
    global _builtin, _shipped
    if _builtin != "unread":
        return
    _builtin = "reading"
    import zoo.cards

    for module in pkgutil.iter_modules(zoo.cards.__path__, "zoo.cards."):
        importlib.import_module(module.name)
    _builtin, _shipped = "read", frozenset(_cards)


def _nearest(word: str, words: Iterable[str]) -> str | None:
    found = difflib.get_close_matches(word, list(words), n=3, cutoff=0.5)
    return f"did you mean {' or '.join(found)}?" if found else None


def check_sizes(given: Mapping[str, Any]) -> None:
    """Refuse sizes with which torch builds no model, nonsense, or one that fills memory.

    Names outside `SIZES`, and None, are left to the model.

    Raises:
        ZooError: a size that is not a whole number from 1 on, or a rate of dropout outside [0, 1).
    """
    for name, value in given.items():
        if value is None or name not in SIZES:
            continue
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if name == "dropout":
            if not (number and 0 <= value < 1):
                raise ZooError(f"{name} must be at least 0 and below 1, not {_shown(value)}")
        elif not (number and isinstance(value, int) and 1 <= value <= LARGEST[name]):
            raise ZooError(f"{name} must be a whole number from 1 to {LARGEST[name]:,}, not {_shown(value)}")


def check_heads(given: Mapping[str, Any]) -> None:
    """Refuse a `d_model` that is no multiple of `n_heads`, where both are given; nearly all models split it so.

    Raises:
        ZooError: it is none.
    """
    d_model, n_heads = given.get("d_model"), given.get("n_heads")
    if d_model is not None and n_heads is not None and d_model % n_heads:
        below = d_model - d_model % n_heads
        nearest = f"{below} or {below + n_heads}" if below else f"{n_heads}"
        raise ZooError(f"d_model {d_model} is no multiple of n_heads {n_heads}; choose d_model {nearest}")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 4]} ..."
