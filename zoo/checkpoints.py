"""Read checkpoints and vocabularies that authors released, without executing code from their files."""

import json
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import torch
from safetensors.torch import load_file
from torch import Tensor

from zoo.errors import ZooError, unreadable
from zoo.safety import refuse_not_finite

_PLAIN = (dict, list, str, int)


def read_checkpoint(
    path: Path, what: str = "the checkpoint", places: Sequence[str] = ("model_state_dict", "state_dict")
) -> dict[str, Tensor]:
    """The tensors of a .safetensors file, or of a torch file: a state dict, alone or under one of `places`.

    The states of optimiser, scheduler and data loader are ignored. Only tensors and plain containers are read
    (`weights_only`), so that a file cannot execute code.

    Args:
        what: what the file is, as messages begin.

    Raises:
        ZooError: the file does not exist, cannot be read this way, or contains something else, NaN and infinity too.
    """
    if not path.is_file():
        raise ZooError(f"there is no checkpoint at {path}")
    try:
        is_safe = path.suffix == ".safetensors"
        found: Any = load_file(path) if is_safe else torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises whatever the damaged bytes lead it to
        raise ZooError(
            f"{what} {path} cannot be read: {unreadable(error)}",
            f"it must be a .safetensors file, or a torch file of tensors and plain containers, as under {places[0]!r}",
        ) from error
    weights = found
    for place in places:
        if isinstance(weights, dict) and isinstance(weights.get(place), dict):
            weights = weights[place]
    named = weights.items() if isinstance(weights, dict) else ()
    if named and all(isinstance(name, str) and isinstance(value, Tensor) for name, value in named):
        refuse_not_finite(weights, f"{what} {path}")
        return dict(weights)
    shown = f"its keys are {', '.join(sorted(map(str, found))[:6])}" if isinstance(found, dict) else type(found)
    raise ZooError(
        f"{what} {path} is not a state dict, and has no tensors under {' or '.join(map(repr, places))}: {shown}",
        f"save a dictionary {{{places[0]!r}: model.state_dict()}}",
    )


def read_vocabulary(path: Path) -> list[str]:
    """The words in the order of their indices, from text of a word a line, JSON, or a pickle restricted to plain data.

    JSON or the pickle contains a list of words, a dictionary of words to indices, or a dictionary with either of them
    inside, as in ExpansionNet's pickles.

    Raises:
        ZooError: the file does not exist, contains something else, or its indices are not 0 .. n - 1, each once.
    """
    if not path.is_file():
        raise ZooError(f"there is no vocabulary at {path}")
    try:
        content = _READERS.get(path.suffix, _read_plain_pickle)(path)
    except (pickle.UnpicklingError, ValueError, EOFError, LookupError, TypeError, AttributeError) as error:
        raise ZooError(
            f"the vocabulary {path} cannot be read: {error}",
            "it must be text (.txt), JSON (.json) or a pickle of dictionaries, lists, strings and integers alone",
        ) from error
    inside = [content, *content.values()] if isinstance(content, dict) else [content]
    readings = [words for part in inside if (words := _in_order(part)) is not None]
    if not readings:
        raise ZooError(f"the vocabulary {path} holds neither a list of words nor words with the indices 0 .. n - 1")
    if any(words != readings[0] for words in readings):
        raise ZooError(f"the vocabulary {path} holds two orders of words, which differ")
    return readings[0]


class _PlainUnpickler(pickle.Unpickler):
    """Refuses every import of a pickle, and so everything that could execute code."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


def _read_plain_pickle(path: Path) -> Any:
    with path.open("rb") as file:
        content = _PlainUnpickler(file).load()
    unread, seen = [content], set()
    while unread:
        part = unread.pop()
        if type(part) not in _PLAIN:
            raise pickle.UnpicklingError(f"it holds a {type(part).__name__}")
        if isinstance(part, (dict, list)) and id(part) not in seen:
            seen.add(id(part))
            unread += [*part, *part.values()] if isinstance(part, dict) else part
    return content


def _read_lines(path: Path) -> list[str]:
    """Words without the space around them, as the authors strip it; blank lines at the end are none."""
    return [line.strip() for line in path.read_bytes().decode().rstrip().split("\n")]


_READERS: dict[str, Callable[[Path], Any]] = {".json": lambda path: json.loads(path.read_bytes()), ".txt": _read_lines}


def _in_order(part: Any) -> list[str] | None:
    """Words by index, if `part` is a list of them or maps each to its own index."""
    if isinstance(part, list):
        words = part
    elif isinstance(part, dict) and part and all(type(index) is int for index in part.values()):
        words = sorted(part, key=part.__getitem__)
        if [part[word] for word in words] != list(range(len(words))):
            return None
    else:
        return None
    usable = bool(words) and all(isinstance(word, str) for word in words) and len(set(words)) == len(words)
    return list(words) if usable else None
