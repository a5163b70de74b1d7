"""Load a vocabulary of any kind from its file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from harness.data import subwords
from harness.data.hub import vocabulary as hub_vocabulary
from harness.data.hub.vocabulary import HubVocabulary
from harness.data.preparation import PREPARATIONS
from harness.data.subwords import SubwordVocabulary
from harness.data.vocabulary import FORMAT, Vocabulary
from harness.utils.errors import BenchError
from harness.utils.files import shortened
from harness.utils.json_io import read_json

T = TypeVar("T")

_FIRST_FORMAT = "captionbench vocabulary 1"
"""Words only, after the four special tokens."""
_FORMATS = {_FIRST_FORMAT, FORMAT, subwords.FORMAT, hub_vocabulary.FORMAT}


def load_vocabulary(path: Path) -> Vocabulary:
    """Load a vocabulary of any kind, written by this version or an earlier one.

    Raises:
        BenchError: the file is missing, damaged or not a vocabulary.
    """
    content = read_json(path)
    stated = content.get("format") if isinstance(content, dict) else None
    known = isinstance(stated, str) and stated in _FORMATS
    words = content.get("words") if known else None
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise BenchError(f"{path} is not a vocabulary of captionbench", hint=f'its "format" must be "{FORMAT}"')
    if not all(_is_text(word) for word in words):
        raise BenchError(f"the vocabulary {path} holds a word that is no text: half of a pair of surrogates")
    if len(set(words)) != len(words):
        raise BenchError(f"the vocabulary {path} lists a word twice")
    if content["format"] == _FIRST_FORMAT:
        return Vocabulary(tuple(words))
    try:
        return _of_content(tuple(words), content)
    except (KeyError, TypeError, ValueError) as error:
        raise BenchError(
            f"the vocabulary {path} is damaged: {_said(error)}", hint="copy it from the run that it belongs to"
        ) from error


def _of_content(words: tuple[str, ...], content: dict[str, Any]) -> Vocabulary:
    preparation = _typed(content["preparation"], str, "preparation")
    if preparation not in PREPARATIONS:
        raise ValueError(f"unknown preparation {shortened(preparation)!r}")
    specials = _typed(content["specials"], dict, "specials")
    common: dict[str, Any] = {name: _typed(specials[name], int, name) for name in ("pad", "bos", "eos", "unk")}
    common["preparation"] = preparation
    if content["format"] == FORMAT:
        return Vocabulary(words, **common)
    if content["format"] == hub_vocabulary.FORMAT:
        found = HubVocabulary(words, **common, tokenizer=_typed(content["tokenizer"], str, "tokenizer"))
        try:
            len(found)
        except Exception as error:  # the library raises nothing more precise
            raise ValueError(f"its tokenizer cannot be read: {error}") from error
        return found
    merges = []
    for pair in _typed(content["merges"], list, "merges"):
        left, right = _typed(pair, list, "a merge")
        merges.append((_typed(left, str, "a merge's part"), _typed(right, str, "a merge's part")))
    return SubwordVocabulary(words, **common, merges=tuple(merges))


def _typed(value: Any, kind: type[T], what: str) -> T:
    """The value where it is of that type itself; TypeError where it is not, or is a bool for a number."""
    if type(value) is not kind:
        raise TypeError(f"{what} is {shortened(repr(value))}, which is no {kind.__name__}")
    return value


def _is_text(word: str) -> bool:
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def _said(error: Exception) -> str:
    return f"no {error}" if isinstance(error, KeyError) else shortened(str(error), 300)
