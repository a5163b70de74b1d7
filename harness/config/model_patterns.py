"""The models that `--models` names: names, shell patterns and `all`."""

from collections.abc import Callable, Collection, Iterable, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

from harness.utils.errors import BenchError
from harness.utils.files import shortened
from zoo.registry import model_card, select_models

CAPTIONS = "captions:"
ENSEMBLE = "ensemble:"
"""Begins a row of several models together; behind it are names or keys of stored runs: `a+b`, or `a:4`, four seeds."""


def looks_at_nothing(name: str) -> bool:
    """Whether a row needs no picture, neither of training nor to be scored."""
    return name in {"human", "majority"} or name.startswith(CAPTIONS)


def needs_no_features(name: str) -> bool:
    """Whether a row reads no features: no pictures at all, or pixels, as published checkpoints do."""
    return looks_at_nothing(name) or is_published(name)


def needs_no_training_captions(name: str) -> bool:
    """Whether a row is neither trained nor made of training captions."""
    return name == "human" or name.startswith(CAPTIONS) or is_published(name)


def is_published(name: str) -> bool:
    """Whether a row is a published checkpoint as it is: of the hub, or a model of the zoo with its own weights."""
    return name.startswith("hf:") or name.endswith("/pretrained")


def split_patterns(text: str) -> tuple[str, ...]:
    """The words of a comma-separated list, without spaces and empty words."""
    return tuple(filter(None, map(str.strip, text.split(","))))


def expand_models(
    patterns: Iterable[str], *, references: Collection[str] = (), is_stored: Callable[[str], bool] | None = None
) -> list[str]:
    """Expand names, shell patterns and `all` to names (`zoo.registry.select_models`), each once, in order.

    `references` are rows that are not models; `all` includes them at its end. A pattern that `is_stored` is the key of
    a run and is kept. BenchError without any pattern; ZooError, with the nearest names, if one matches nothing.
    """
    names: dict[str, None] = {}
    for pattern in patterns:
        exact = pattern in references or (is_stored is not None and is_stored(pattern))
        matching = [pattern] if exact else select_models(pattern)
        if pattern == "all":
            matching = [*matching, *references]
        if not matching:
            model_card(pattern)  # raises, naming the nearest
        names.update(dict.fromkeys(matching))
    if not names:
        raise BenchError("--models names no model", "write --models all, or see `bench models` for the names")
    return list(names)


def match_stored(patterns: Iterable[str], names: Sequence[str], option: str = "--models") -> list[str]:
    """The stored rows that names, shell patterns and `all` stand for, in their own order.

    BenchError, with the nearest names, for a pattern that no row matches.
    """
    chosen: set[str] = set()
    for pattern in patterns:
        matching = [name for name in names if pattern in {"all", name} or fnmatchcase(name, pattern)]
        if not matching:
            near = get_close_matches(pattern, names, n=3, cutoff=0.5)
            hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(names)}"
            raise BenchError(f"{option} {shortened(pattern)}: no such row is stored", hint)
        chosen.update(matching)
    if not chosen:
        raise BenchError(f"{option} names no model", f"there are {', '.join(names)}")
    return [name for name in names if name in chosen]
