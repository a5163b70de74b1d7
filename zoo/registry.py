"""The registry of models: cards that cost nothing to list, and one factory. Imports no torch until a model is built."""

from __future__ import annotations

import difflib
import fnmatch
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from zoo.errors import ZooError

if TYPE_CHECKING:
    from zoo.captioner import Captioner, VisualKind

SIZES = ("d_model", "d_ff", "n_heads", "n_encoder_layers", "n_decoder_layers", "dropout", "max_len")
"""The size contract: what these arguments are called in every model that has such a thing."""

_GIVEN_TO_ALL = {"visual_dim", *SIZES}

_NAME = re.compile(r"[a-z0-9][a-z0-9_]*(/[a-z0-9][a-z0-9_.-]*)?")
_cards: dict[str, ModelCard] = {}
_builtin = "unread"


@dataclass(frozen=True, slots=True)
class Pretraining:
    """What a model's weights were trained on before any run of this benchmark, as papers and model cards say.

    Attributes:
        data_sets: everything that a part of it was trained on, text and labels too.
        captions: which captions, and about how many.
        captions_of: the data sets whose captions these are, as `COCO`; empty where it saw none.
        overlap: by data set that is evaluated on, why its evaluation images, or some, may have been seen.
        source: where all of that is stated.
    """

    data_sets: tuple[str, ...]
    captions: str
    captions_of: tuple[str, ...]
    overlap: Mapping[str, str]
    source: str


NOT_DOCUMENTED = Pretraining((), "not documented", (), {}, "not documented")
"""Of weights that were trained before, on what nobody says."""


@dataclass(frozen=True, slots=True)
class ModelCard:
    """What is known of a model without building it.

    Attributes:
        name: `family` or `family/variant`, lower case.
        entry: "module:attribute" of the constructor, imported on creation; a plug-in may give the class itself.
        summary: one line for listings.
        paper: authors, title, venue.
        year: of the paper.
        source: repository of the authors' code.
        licence: of the authors' code.
        visual: the kind of visual input with the preset's arguments.
        arguments: the preset, as keyword arguments of the constructor.
        tiny: arguments on top of the preset that give a model small enough for unit tests.
        small: sizes outside the size contract (`SIZES`) that suit a small run, on top of the preset.
        in_all: whether `all` means this one too though it is a variant.
        hub: for a pretrained model the repository of its weights on the Hugging Face Hub; its constructor takes
            `folder`, where they lie, and without it has random weights.
        pretraining: what its weights saw before the run; None where they saw nothing.
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

    @property
    def has_backbone(self) -> bool:
        """Whether the model owns a backbone, and is a `zoo.HasBackbone`."""
        return "backbone" in self.arguments


def register_model(card: ModelCard) -> ModelCard:
    """Add a model; gives the card back.

    Raises:
        ZooError: the name is taken or malformed.
    """
    _read_builtin_cards()
    if not _NAME.fullmatch(card.name):
        raise ZooError(
            f"{card.name!r} is no model name",
            "use lower-case letters, digits and _, and for a variant: family/variant",
        )
    if card.name in _cards:
        raise ZooError(f"a model named {card.name!r} is registered already", "give the new one another name")
    _cards[card.name] = card
    return card


def list_models(pattern: str = "*") -> list[str]:
    """Names that match a shell pattern, sorted; `expansionnet*` finds variants too, since * also matches a slash."""
    _read_builtin_cards()
    return sorted(name for name in _cards if fnmatch.fnmatchcase(name, pattern))


def select_models(pattern: str) -> list[str]:
    """Names for one word of a command line: `all`, a shell pattern, or a name.

    `all` is every model that is no variant, and the variants whose cards say so. A pattern leaves out models that read
    pixels, which train their own backbone at many times the cost of the others: these are chosen by name alone.
    """
    if pattern == "all":
        return [name for name in list_models() if _in_all(model_card(name))]
    return [name for name in list_models(pattern) if name == pattern or model_card(name).visual != "pixels"]


def _in_all(card: ModelCard) -> bool:
    return card.in_all or ("/" not in card.name and card.visual != "pixels")


def model_card(name: str) -> ModelCard:
    """The card of one model; raises ZooError with the nearest names if there is none."""
    _read_builtin_cards()
    if name not in _cards:
        raise ZooError(f"there is no model named {name!r}", _nearest(name, _cards) or "`bench models` lists them all")
    return _cards[name]


def create_model(name: str, *, vocab_size: int, visual_dim: int, **overrides: Any) -> Captioner:
    """Build a model: the card's preset, overridden by keyword arguments.

    Args:
        name: a registered name.
        vocab_size: V, special tokens included.
        visual_dim: C, channels of the visual features.
        overrides: arguments of the model's constructor; `SIZES` that it does not take are left out, and so is
            `visual_dim` of a model that sees pixels.

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
    model = constructor(vocab_size=vocab_size, **arguments)
    if not isinstance(model, Captioner):
        raise ZooError(f"the entry of {name} built a {type(model).__name__}, which is no zoo.Captioner")
    return model


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
    """Import every file of `zoo.presets` once; they call `register_model`, which must not start over."""
    global _builtin
    if _builtin != "unread":
        return
    _builtin = "reading"
    import zoo.presets

    for module in pkgutil.iter_modules(zoo.presets.__path__, "zoo.presets."):
        importlib.import_module(module.name)
    _builtin = "read"


def _nearest(word: str, words: Iterable[str]) -> str | None:
    found = difflib.get_close_matches(word, list(words), n=3, cutoff=0.5)
    return f"did you mean {' or '.join(found)}?" if found else None
