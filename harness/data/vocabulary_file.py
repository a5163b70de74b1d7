"""Load a vocabulary of any kind from its file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.data import subwords
from harness.data.hub import vocabulary as hub_vocabulary
from harness.data.hub.vocabulary import HubVocabulary
from harness.data.preparation import PREPARATIONS
from harness.data.subwords import SubwordVocabulary
from harness.data.vocabulary import FORMAT, Vocabulary
from harness.utils.errors import BenchError
from harness.utils.json_io import read_json

_FIRST_FORMAT = "captionbench vocabulary 1"
"""Words only, after the four special tokens."""
_FORMATS = {_FIRST_FORMAT, FORMAT, subwords.FORMAT, hub_vocabulary.FORMAT}


def load_vocabulary(path: Path) -> Vocabulary:
    """Load a vocabulary of any kind, written by this version or an earlier one.

    Raises:
        BenchError: the file is missing, damaged or not a vocabulary.
    """
    content = read_json(path)
    known = isinstance(content, dict) and content.get("format") in _FORMATS
    words = content.get("words") if known else None
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise BenchError(f"{path} is not a vocabulary of captionbench", hint=f'its "format" must be "{FORMAT}"')
    if len(set(words)) != len(words):
        raise BenchError(f"the vocabulary {path} lists a word twice")
    if content["format"] == _FIRST_FORMAT:
        return Vocabulary(tuple(words))
    try:
        return _of_content(tuple(words), content)
    except (KeyError, TypeError, ValueError) as error:
        raise BenchError(f"the vocabulary {path} is damaged: {type(error).__name__}: {error}") from error


def _of_content(words: tuple[str, ...], content: dict[str, Any]) -> Vocabulary:
    preparation = str(content["preparation"])
    if preparation not in PREPARATIONS:
        raise ValueError(f"unknown preparation {preparation!r}")
    common: dict[str, Any] = {name: int(content["specials"][name]) for name in ("pad", "bos", "eos", "unk")}
    common["preparation"] = preparation
    if content["format"] == FORMAT:
        return Vocabulary(words, **common)
    if content["format"] == hub_vocabulary.FORMAT:
        return HubVocabulary(words, **common, tokenizer=str(content["tokenizer"]))
    merges = tuple((str(left), str(right)) for left, right in content["merges"])
    return SubwordVocabulary(words, **common, merges=merges)
