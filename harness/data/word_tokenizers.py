"""Tokenizers of captions for languages that do not part words by spaces: Chinese, Japanese, Thai; and Vietnamese.

The vocabulary and all metrics take the same words. A word is lower case and has no punctuation and no symbol. Text that
is joined from words has the same words again, however it was segmented:

- **A space always parts words.** Each piece between spaces is segmented by itself, and what comes out once more, until
  every word stays whole when it stands alone. So words that a model writes with spaces between them are scored as these
  words. Spaces around Latin words or after punctuation change nothing, since words end there anyway.
- In Vietnamese spaces part syllables, and a word of several is joined by underscores: a caption that has an underscore
  within a word is segmented already, and parted at its spaces alone.
"""

import logging
import os
import re
import unicodedata
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from threading import Lock
from typing import Any, Final, Literal

from harness.config.evaluation import WordTokenizerName
from harness.utils.errors import BenchError
from harness.utils.workspace import user_cache
from results.errors import install_extra

_CACHED_PIECES: Final = 200_000
_DROPPED: Final = frozenset("PSZC")
"""Initials of the Unicode categories of characters outside words: punctuation, symbols, separators, controls."""
_UNSPACED: Final = "".join(
    (
        "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3038-\u303b\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff",  # Han
        "\U00020000-\U0003fffd",
        "\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9f",  # hiragana and katakana
        "\u3100-\u312f\u31a0-\u31bf",  # Bopomofo
        "\u0e00-\u0e7f\u0e80-\u0eff\u1780-\u17ff",  # Thai, Lao, Khmer
        "\u1000-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f",  # Myanmar
    )
)
_RUN: Final = re.compile(f"(?P<unspaced>[{_UNSPACED}]+)|[^{_UNSPACED}]+")
_SYLLABLES: Final = "_"
"""Joins the syllables of a Vietnamese word."""


def tokenize_characters(caption: str) -> list[str]:
    """Each character of a script without spaces, and each run of other letters and digits.

    The text is normalised to NFC and lower-cased. Punctuation and symbols part words and are dropped. A combining mark
    belongs to the character before it. Scripts without spaces are Han, kana, Bopomofo, Thai, Lao, Khmer and Myanmar:
    "我有2只 cats!" is 我, 有, 2, 只, cats.
    """
    return _words(_normalised(caption, "NFC"), _characters)


def tokenize_chinese(caption: str) -> list[str]:
    """The words of jieba in runs of Han characters, and each run of other letters and digits.

    The text is normalised to NFKC, so that full-width letters are plain ones, and lower-cased.
    """
    return _words(_normalised(caption, "NFKC"), _cut_chinese)


def tokenize_japanese(caption: str) -> list[str]:
    """As `tokenize_chinese`, by MeCab with UniDic (fugashi and unidic-lite): UniDic's short unit words."""
    return _words(_normalised(caption, "NFKC"), _cut_japanese)


@lru_cache(_CACHED_PIECES)
def _vietnamese(caption: str) -> tuple[str, ...]:
    text = _normalised(caption, "NFKC", keep=_SYLLABLES)
    words = [word for part in text.split() if (word := part.strip(_SYLLABLES))]
    while words and not any(_SYLLABLES in word for word in words):
        segmented = _pyvi()(" ".join(words)).split()
        if segmented == words:
            break
        words = segmented
    return tuple(words)


def tokenize_vietnamese(caption: str) -> list[str]:
    """The words that pyvi makes of syllables, such as `xe_đạp`; the text is normalised as by `tokenize_chinese`."""
    return list(_vietnamese(caption))


@dataclass(frozen=True, slots=True)
class WordTokenizer:
    """A tokenizer of captions; scores depend on the versions of its `packages`."""

    tokenize: Callable[[str], list[str]]
    packages: tuple[str, ...] = ()


WORD_TOKENIZERS: Final[Mapping[WordTokenizerName, WordTokenizer]] = {
    "characters": WordTokenizer(tokenize_characters),
    "zh": WordTokenizer(tokenize_chinese, ("jieba",)),
    "ja": WordTokenizer(tokenize_japanese, ("fugashi", "unidic-lite")),
    "vi": WordTokenizer(tokenize_vietnamese, ("pyvi",)),
}


def word_tokenizer(name: str) -> WordTokenizer | None:
    """The tokenizer with this name; None for those of languages with spaces."""
    return next((tokenizer for tokenizer_name, tokenizer in WORD_TOKENIZERS.items() if tokenizer_name == name), None)


def tokenize_words(captions: Sequence[str], name: WordTokenizerName) -> list[str]:
    """Words of each caption, joined by spaces, in the order given."""
    tokenize = WORD_TOKENIZERS[name].tokenize
    return [" ".join(tokenize(caption)) for caption in captions]


def tokenizer_label(name: WordTokenizerName) -> str:
    """Tokenizer and versions of its packages, such as `zh-jieba-0.42.1`; BenchError where one is not installed."""
    parts: list[str] = [name]
    for package in WORD_TOKENIZERS[name].packages:
        try:
            parts += [package, version(package)]
        except PackageNotFoundError as error:
            raise _not_installed(name, package) from error
    return "-".join(parts)


def _not_installed(name: WordTokenizerName, package: str) -> BenchError:
    return BenchError(
        f"--tokenizer {name} needs the package {package}, which is not installed",
        f"pip install 'captionbench[languages]', or in a checkout: {install_extra('languages')}",
    )


def _require(name: WordTokenizerName) -> None:
    for package in WORD_TOKENIZERS[name].packages:
        if find_spec(package.replace("-", "_")) is None:
            raise _not_installed(name, package)


def _normalised(text: str, form: Literal["NFC", "NFKC"], keep: str = "") -> str:
    """The text in lower case and this normal form, with spaces for characters that are not part of words."""
    text = unicodedata.normalize(form, unicodedata.normalize(form, text).lower())
    return "".join(
        " " if unicodedata.category(letter)[0] in _DROPPED and letter not in keep else letter for letter in text
    )


def _words(text: str, cut: Callable[[str], Sequence[str]]) -> list[str]:
    """The runs of normalised text, where those of a script without spaces are segmented into words."""
    words: list[str] = []
    for piece in text.split():
        for run in _RUN.finditer(piece):
            words += cut(run[0]) if run["unspaced"] else (run[0],)
    return words


def _characters(run: str) -> list[str]:
    characters: list[str] = []
    for letter in run:
        if characters and unicodedata.category(letter)[0] == "M":
            characters[-1] += letter
        else:
            characters.append(letter)
    return characters


@lru_cache(_CACHED_PIECES)
def _cut_chinese(run: str) -> tuple[str, ...]:
    return _until_whole(run, _jieba())


@lru_cache(_CACHED_PIECES)
def _cut_japanese(run: str) -> tuple[str, ...]:
    return _until_whole(run, _mecab())


def _until_whole(run: str, segment: Callable[[str], list[str]]) -> tuple[str, ...]:
    """Segment a run, and then each word again, until no word is split further."""
    words = segment(run)
    if len(words) == 1:
        return tuple(words)
    return tuple(part for word in words for part in _until_whole(word, segment))


@cache
def _jieba() -> Callable[[str], list[str]]:
    _require("zh")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of escapes in its regular expressions, and of pkg_resources
        import jieba

    jieba.setLogLevel(logging.CRITICAL)  # it works without its cache, too
    tokenizer = jieba.Tokenizer()  # of its own: words that other code adds to jieba's shared one change no score
    folder = user_cache() / "jieba"
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    tokenizer.tmp_dir = str(folder)  # else its cached dictionary is a file that anybody may put into /tmp
    return lambda text: [str(word) for word in tokenizer.cut(text)]


@cache
def _mecab() -> Callable[[str], list[str]]:
    _require("ja")
    import fugashi
    import unidic_lite

    # The dictionary is named, since fugashi would prefer the larger UniDic where that is installed too.
    tagger: Any = fugashi.GenericTagger(f'-r "{os.devnull}" -d "{unidic_lite.DICDIR}"')
    lock = Lock()  # a tagger is of one thread at a time

    def segment(text: str) -> list[str]:
        with lock:
            return [str(node.surface) for node in tagger(text)]

    return segment


@cache
def _pyvi() -> Callable[[str], str]:
    _require("vi")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pyvi import ViTokenizer

    return lambda text: str(ViTokenizer.tokenize(text))
