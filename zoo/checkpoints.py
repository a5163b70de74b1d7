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
    path: Path, title: str = "the checkpoint", keys: Sequence[str] = ("model_state_dict", "state_dict")
) -> dict[str, Tensor]:
    """The tensors of a .safetensors file, or of a torch file with a state dict.

    The states of optimiser, scheduler and data loader are ignored. Only tensors and plain containers are read
    (`weights_only`), so that a file cannot execute code.

    Args:
        title: what messages call the file.
        keys: keys under which a torch file may hold its state dict.

    Raises:
        ZooError: the file does not exist, cannot be read this way, holds no state dict, or has NaN or infinity in it.
    """
    if not path.is_file():
        raise ZooError(f"there is no checkpoint at {path}")
    try:
        if path.suffix == ".safetensors":
            content: Any = load_file(path)
        else:
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many types on damaged files
        raise ZooError(
            f"{title} {path} cannot be read: {unreadable(error)}",
            f"it must be a .safetensors file, or a torch file of tensors and plain containers, as under {keys[0]!r}",
        ) from error
    weights = content
    for key in keys:
        if isinstance(weights, dict) and isinstance(weights.get(key), dict):
            weights = weights[key]
    entries = weights.items() if isinstance(weights, dict) else ()
    if entries and all(isinstance(name, str) and isinstance(value, Tensor) for name, value in entries):
        refuse_not_finite(weights, f"{title} {path}")
        return dict(weights)
    if isinstance(content, dict):
        description = f"its keys are {', '.join(sorted(map(str, content))[:6])}"
    else:
        description = f"it is a {type(content).__name__}"
    raise ZooError(
        f"{title} {path} is not a state dict, and has no tensors under {' or '.join(map(repr, keys))}: {description}",
        f"save a dictionary {{{keys[0]!r}: model.state_dict()}}",
    )


def read_vocabulary(path: Path) -> list[str]:
    """The words in the order of their indices, from text with one word per line, JSON, or a pickle of plain data.

    JSON or the pickle contains a list of words, a dictionary from words to indices, or, as ExpansionNet's pickles, a
    dictionary whose values include one of these.

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
            "it must be text (.txt), JSON (.json) or a pickle of dictionaries, lists, strings and integers only",
        ) from error
    candidates = [content, *content.values()] if isinstance(content, dict) else [content]
    word_lists = [words for words in map(_words_by_index, candidates) if words is not None]
    if not word_lists:
        raise ZooError(f"the vocabulary {path} holds neither a list of words nor words with the indices 0 .. n - 1")
    if any(words != word_lists[0] for words in word_lists):
        raise ZooError(f"the vocabulary {path} holds two different orders of words")
    return word_lists[0]


class _PlainUnpickler(pickle.Unpickler):
    """Refuses every import in a pickle, and so everything that could execute code."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it imports {module}.{name}")


def _read_plain_pickle(path: Path) -> Any:
    """The content of a pickle; UnpicklingError where it is not made of `_PLAIN` types only."""
    with path.open("rb") as file:
        content = _PlainUnpickler(file).load()
    pending = [content]
    visited = set()
    while pending:
        part = pending.pop()
        if type(part) not in _PLAIN:
            raise pickle.UnpicklingError(f"it holds a {type(part).__name__}")
        if isinstance(part, (dict, list)) and id(part) not in visited:
            visited.add(id(part))
            pending += [*part, *part.values()] if isinstance(part, dict) else part
    return content


def _read_lines(path: Path) -> list[str]:
    """The stripped lines of a text, without blank lines at its end."""
    return [line.strip() for line in path.read_bytes().decode().rstrip().split("\n")]


_READERS: dict[str, Callable[[Path], Any]] = {".json": lambda path: json.loads(path.read_bytes()), ".txt": _read_lines}


def _words_by_index(content: Any) -> list[str] | None:
    """The words in order, if `content` is a list of distinct words, or maps words to 0 .. n - 1; else None."""
    if isinstance(content, list):
        words = content
    elif isinstance(content, dict) and content and all(type(index) is int for index in content.values()):
        words = sorted(content, key=content.__getitem__)
        if [content[word] for word in words] != list(range(len(words))):
            return None
    else:
        return None
    if not words or not all(isinstance(word, str) for word in words) or len(set(words)) < len(words):
        return None
    return list(words)
