"""The model registry: the cards of all models, and `create_model`. Imports no torch until a model is created."""

from __future__ import annotations

import difflib
import fnmatch
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import zoo.cards
from zoo.card import ModelCard
from zoo.errors import ZooError

if TYPE_CHECKING:
    from zoo.captioner import Captioner

LARGEST: Final[Mapping[str, int]] = {
    "d_model": 2**16,
    "d_ff": 2**18,
    "n_heads": 2**10,
    "n_encoder_layers": 1_000,
    "n_decoder_layers": 1_000,
    "max_len": 10_000,
    "patch_size": 10_000,
}
"""The largest accepted value of each integer size, far above that of any published model."""
SIZES: Final = (*LARGEST, "dropout")
_MAX_REPR = 40
_OPTIONAL = {"visual_dim", *SIZES}
"""Arguments that `create_model` drops where a constructor does not have them."""

RESERVED = frozenset({"all", "auto", "human", "majority", "retrieval"})
"""Words with another meaning in --models."""
_NAME = re.compile(r"[a-z0-9][a-z0-9_]*(/[a-z0-9][a-z0-9_.-]*)?")
_registered: dict[str, ModelCard] = {}
"""Cards of plug-ins, by name."""


def register_model(card: ModelCard, files: Iterable[str | Path] = ()) -> ModelCard:
    """Register a model; returns its card.

    Args:
        card: its description.
        files: files that its code reads, such as weights or a table of sizes; the keys of its runs depend on their
            contents. `files=[Path(__file__).with_name("sizes.json")]` is a file in the module's folder.

    Raises:
        ZooError: the name is taken, reserved or malformed, or a file does not exist.
    """
    if not _NAME.fullmatch(card.name):
        raise ZooError(
            f"{card.name!r} is not a valid model name",
            "use lower-case letters, digits and _, and for a variant: family/variant",
        )
    if card.name in RESERVED:
        raise ZooError(f"{card.name!r} is reserved and cannot name a model", f"use my_{card.name}")
    if card.name in registered_cards():
        raise ZooError(f"a model named {card.name!r} is already registered", "choose another name")
    paths = tuple(Path(file).resolve() for file in files)
    for path in paths:
        if not path.is_file():
            raise ZooError(
                f"{card.name}: no such file: {path}",
                'for a file in the module\'s folder: Path(__file__).with_name("NAME")',
            )
    card = replace(card, files=paths)
    _registered[card.name] = card
    return card


@cache
def _shipped_cards() -> dict[str, ModelCard]:
    """The cards of the zoo's own models, by name: the `CARDS` of every module of `zoo.cards`."""
    modules = (importlib.import_module(info.name) for info in pkgutil.iter_modules(zoo.cards.__path__, "zoo.cards."))
    return {card.name: card for module in modules for card in module.CARDS}


def registered_cards() -> dict[str, ModelCard]:
    """The cards of all models, by name: the zoo's own, then those of plug-ins."""
    return {**_shipped_cards(), **_registered}


def list_models(pattern: str = "*") -> list[str]:
    """Names that match a shell pattern, sorted; * also matches a slash, so `expansionnet*` includes variants."""
    return sorted(name for name in registered_cards() if fnmatch.fnmatchcase(name, pattern))


def select_models(pattern: str) -> list[str]:
    """The names that `all`, a shell pattern, or a name selects in --models.

    `all` selects every model that is not a variant, and variants with `in_all`. `all` and patterns leave out models on
    pixels, which train their own backbone at many times the cost of the others, unless `in_all` is set.
    """
    if pattern == "all":
        cards = map(model_card, list_models())
        return [card.name for card in cards if card.in_all or ("/" not in card.name and card.visual != "pixels")]
    return [name for name in list_models(pattern) if name == pattern or model_card(name).visual != "pixels"]


def model_card(name: str) -> ModelCard:
    """The card of one model; raises ZooError with similar names if it is unknown."""
    cards = registered_cards()
    if name not in cards:
        raise ZooError(f"there is no model named {name!r}", _suggest(name, cards) or "`bench models` lists them all")
    return cards[name]


def is_shipped(name: str) -> bool:
    """Whether a model is the zoo's own, whose interface the tests check, and not a plug-in's."""
    return name in _shipped_cards()


def create_model(name: str, *, vocab_size: int, visual_dim: int, **overrides: Any) -> Captioner:
    """Build a model with the arguments of its card, overridden by keyword arguments.

    Args:
        overrides: arguments of the model's constructor; `visual_dim` and those of `SIZES` are ignored where the
            constructor does not have them.

    Raises:
        ZooError: unknown name, unknown argument, or an invalid value.
    """
    from zoo.captioner import Captioner

    card = model_card(name)
    constructor = _load_entry(card)
    accepted = inspect.signature(constructor).parameters
    arguments = {"visual_dim": visual_dim, **card.arguments, **overrides}
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in accepted.values()):
        arguments = {key: value for key, value in arguments.items() if key in accepted or key not in _OPTIONAL}
        choices = sorted(set(accepted) - {"vocab_size", "visual_dim"})
        for argument in arguments:
            if argument not in accepted:
                hint = _suggest(argument, choices) or f"{name} takes {', '.join(choices)}"
                raise ZooError(f"{name} has no argument {argument!r}", hint)
    check_sizes(arguments)
    for dimension, value in (("vocab_size", vocab_size), ("visual_dim", visual_dim)):
        if value < 0:
            raise ZooError(f"{dimension} must be at least 0, not {value}")
    try:
        model = constructor(vocab_size=vocab_size, **arguments)
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:  # for example sys.exit() in a plug-in, which would end the program silently
        raise ZooError(f"the constructor of {name} raised {error!r}") from error
    if not isinstance(model, Captioner):
        raise ZooError(f"the entry of {name} built a {type(model).__name__}, which is not a zoo.Captioner")
    if not is_shipped(name):
        _check_matches_card(model, card)
    return model


def _check_matches_card(model: Captioner, card: ModelCard) -> None:
    """ZooError where a model lacks an attribute of `Captioner`, or its visual input differs from its card's."""
    for attribute in ("visual", "vocab_size", "max_len"):
        if not hasattr(model, attribute):
            raise ZooError(
                f"the constructor of {card.name} does not set {attribute}",
                "set visual = VisualSpec(kind, channels), vocab_size and max_len",
            )
    visual = model.visual
    for field, on_card, of_model in (("visual", card.visual, visual.kind), ("graph", card.graph, visual.graph)):
        if on_card != of_model:
            raise ZooError(
                f"the card of {card.name} has {field}={on_card!r}, but its VisualSpec has {of_model!r}",
                "the harness provides the input named on the card: use the same kind in both",
            )


def default_arguments(name: str) -> dict[str, Any]:
    """The arguments that a model is built with by default: those of its card over its constructor's defaults.

    Raises:
        ZooError: unknown name, or an entry that cannot be loaded.
    """
    card = model_card(name)
    parameters = inspect.signature(_load_entry(card)).parameters.values()
    defaults = {
        parameter.name: parameter.default for parameter in parameters if parameter.default is not parameter.empty
    }
    return {**defaults, **card.arguments}


def _load_entry(card: ModelCard) -> Callable[..., Captioner]:
    """The constructor that a card names; ZooError where it cannot be imported."""
    if not isinstance(card.entry, str):
        return card.entry
    module, _, attribute = card.entry.partition(":")
    try:
        constructor: Callable[..., Captioner] = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ZooError(f"the entry {card.entry!r} of model {card.name!r} cannot be loaded: {error}") from error
    return constructor


def _suggest(word: str, choices: Iterable[str]) -> str | None:
    """A question with the choices most similar to `word`; None where none is similar."""
    similar = difflib.get_close_matches(word, list(choices), n=3, cutoff=0.5)
    return f"did you mean {' or '.join(similar)}?" if similar else None


def check_sizes(arguments: Mapping[str, Any]) -> None:
    """Validate size arguments.

    Names outside `SIZES`, and None, are left to the model.

    Raises:
        ZooError: a size that is not a whole number from 1 on, or a dropout rate outside [0, 1).
    """
    for name, value in arguments.items():
        if value is None or name not in SIZES:
            continue
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if name == "dropout":
            if not (is_number and 0 <= value < 1):
                raise ZooError(f"{name} must be at least 0 and below 1, not {_short_repr(value)}")
        elif not (is_number and isinstance(value, int) and 1 <= value <= LARGEST[name]):
            raise ZooError(f"{name} must be a whole number from 1 to {LARGEST[name]:,}, not {_short_repr(value)}")


def check_heads(arguments: Mapping[str, Any]) -> None:
    """ZooError where `d_model` and `n_heads` are given and `d_model` is not a multiple of `n_heads`."""
    d_model = arguments.get("d_model")
    n_heads = arguments.get("n_heads")
    if d_model is not None and n_heads is not None and d_model % n_heads:
        below = d_model - d_model % n_heads
        nearest = f"{below} or {below + n_heads}" if below else f"{n_heads}"
        raise ZooError(f"d_model {d_model} is not a multiple of n_heads {n_heads}; choose d_model {nearest}")


def _short_repr(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_REPR else f"{text[: _MAX_REPR - 4]} ..."
