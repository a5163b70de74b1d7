"""Check whether captions look like captions, which scores do not show."""

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from harness.config.evaluation import TokenizerName
from harness.config.limits import MAX_TOKENS
from harness.config.preset import Preset
from harness.data.formats.table import caption_list
from harness.data.word_tokenizers import word_tokenizer
from harness.utils.errors import BenchError
from harness.utils.files import shortened

_MARKUP: Final = re.compile(
    r"<\|?/?(?:s|start|end|bos|eos|pad|unk|sos|cls|sep|mask|im_start|im_end|image|endoftext|assistant|user)[^<>]{0,20}>"
    r"|\[(?:CLS|SEP|PAD|UNK|MASK|INST|/INST)\]|\bASSISTANT:",
    re.IGNORECASE,
)
_MISSING: Final = {"nan", "none", "null", "n/a", "<unk>"}
_SHOWN: Final = 60
_UNSPACED: Final = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR")
_MOST_UNSPACED: Final = 0.5
"""Of the captions; a few may hold one foreign word."""
_LONG_WORD: Final = 6
"""Letters of such a script without a space, which no word of it has."""
_NEARLY_ALL: Final = 0.9
"""Of the captions of a system, which hardly ever writes what a person wrote of the same image."""

Checks = dict[str, Callable[[str], bool]]


def _is_json(text: str) -> bool:
    stripped = text.strip()
    braced = stripped.startswith("{") and stripped.endswith("}") and ":" in stripped
    return braced or caption_list(stripped) is not None


def _is_id(text: str) -> bool:
    return re.fullmatch(r"[0-9]+|[\w./\\-]+\.(?:jpe?g|png|webp)", text.strip()) is not None


_CHECKS: Final[Checks] = {
    "hold special tokens or markup of a model": lambda text: _MARKUP.search(text) is not None,
    "are JSON or a list": _is_json,
    "are an id or a file name": _is_id,
    "say that a value is missing": lambda text: text.strip().lower() in _MISSING,
}


def odd_captions(captions: Mapping[int, str], examples: int = 1) -> list[str]:
    """A sentence for each kind of text that is hardly a caption, with the count and up to `examples` examples."""
    sentences = []
    for description, is_odd in _CHECKS.items():
        odd = [text for text in captions.values() if is_odd(text)]
        if odd:
            samples = ", ".join(repr(shortened(text, _SHOWN)) for text in list(dict.fromkeys(odd))[:examples])
            sentences.append(f"{len(odd):,} of {len(captions):,} captions {description}, such as {samples}")
    return sentences


def single_words(captions: Sequence[str]) -> list[str]:
    """A sentence if nearly all captions are single words, as if a list of words had been read as captions."""
    words = [text for text in captions if len(text.split()) == 1]
    if len(words) <= _NEARLY_ALL * len(captions) or unspaced(captions, "") is not None:
        return []
    return [f"{len(words):,} of {len(captions):,} references are single words, such as {shortened(words[0], _SHOWN)!r}"]


def without_shared_words(
    captions: Mapping[int, str], references: Mapping[int, Sequence[str]], tokenizer: TokenizerName = "python"
) -> str:
    """A sentence if at least half of the captions share no word with any of their references; otherwise ""."""
    word_tokens = word_tokenizer(tokenizer)
    if word_tokens is None and unspaced((text for texts in references.values() for text in texts), "") is not None:
        return ""  # which is refused

    def words(text: str) -> set[str]:
        return set(re.findall(r"\w+", text.lower()) if word_tokens is None else word_tokens.tokenize(text))

    unshared = [
        image_id
        for image_id, text in captions.items()
        if image_id in references and not any(words(text) & words(reference) for reference in references[image_id])
    ]
    if not unshared or 2 * len(unshared) < len(captions):
        return ""
    example = unshared[0]
    return (
        f"{len(unshared):,} of {len(captions):,} captions share no word with a reference of their image, such as "
        f"{shortened(captions[example], _SHOWN)!r} beside {shortened(references[example][0], _SHOWN)!r} "
        f"(image {example})"
    )


def copied_references(captions: Mapping[int, str], references: Mapping[int, Sequence[str]]) -> str:
    """A sentence if nearly all captions equal a reference of their image; otherwise ""."""
    copies = [image_id for image_id, text in captions.items() if text in references.get(image_id, ())]
    if len(copies) < 2 or len(copies) < _NEARLY_ALL * len(captions):
        return ""
    example = shortened(captions[copies[0]], _SHOWN)
    return (
        f"{len(copies):,} of {len(captions):,} captions are word for word a reference of their image, such as "
        f"{example!r}: --caption-field names another field"
    )


def refuse_unspaced(texts: Iterable[str], whose: str, tokenizer: TokenizerName = "python") -> None:
    """BenchError if most captions are in a script without spaces and the tokenizer splits at spaces."""
    if word_tokenizer(tokenizer) is not None:
        return
    script = unspaced(texts, whose)
    if script is not None:
        raise BenchError(f"{script.sentence}: the tokenizer would take each for one word", f"add {script.options}")


@dataclass(frozen=True, slots=True)
class Unspaced:
    """A sentence that counts captions in a script without spaces, and the options that segment them."""

    sentence: str
    options: str


def unspaced(texts: Iterable[str], whose: str) -> Unspaced | None:
    """The finding where most captions are in a script without spaces; otherwise None."""
    texts = list(texts)
    unspaced_texts = [text for text in texts if _is_unspaced(text)]
    if len(unspaced_texts) <= _MOST_UNSPACED * len(texts):
        return None
    sentence = f"{len(unspaced_texts):,} of {len(texts):,} captions of {whose} are in a script without spaces, such as "
    return Unspaced(f"{sentence}{shortened(unspaced_texts[0], _SHOWN)!r}", _tokenizer_options(unspaced_texts))


def _tokenizer_options(texts: Iterable[str]) -> str:
    """The options that segment these texts, the best for their script first."""
    scripts = {_script(letter) for text in texts for letter in text}
    if scripts & {"HIRAGANA", "KATAKANA"}:
        return "--tokenizer ja, or --tokenizer characters"
    if "CJK" in scripts:
        return "--tokenizer zh, or --tokenizer characters"
    return "--tokenizer characters"


def _is_unspaced(text: str) -> bool:
    if text.isascii():
        return False
    words = ([letter for letter in piece if letter.isalpha()] for piece in text.split())
    return any(len(word) >= _LONG_WORD and all(_script(letter) in _UNSPACED for letter in word) for word in words)


def _script(letter: str) -> str:
    return unicodedata.name(letter, "").partition(" ")[0]


def cut_references(captions: Sequence[str], lengths: Sequence[int], preset: Preset) -> str:
    """A sentence on the training captions that a preset cuts, with the settings that avoid it; "" if it cuts none.

    Args:
        captions: all training captions.
        lengths: how many words each of them has.
    """
    most_words = preset.vocabulary.max_len - 2  # without the begin and the end token
    cut = [index for index, length in enumerate(lengths) if length > most_words]
    if not cut:
        return ""
    longest = max(cut, key=lambda index: lengths[index])
    tokens = min(lengths[longest] + 2, MAX_TOKENS)
    settings = [f"--set vocabulary.max_len={tokens}"]
    if preset.decoding.max_len < tokens - 1:
        settings.append(f"--set decoding.max_len={tokens - 1}")
    if preset.size.get("max_len", MAX_TOKENS) < tokens:
        settings.append(f"--set size.max_len={tokens}")
    extent = "whole" if tokens == lengths[longest] + 2 else f"up to {tokens - 2} words"
    return (
        f"{len(cut):,} of {len(lengths):,} training captions exceed {most_words} words (up to {lengths[longest]:,}) "
        f"and are cut, such as {shortened(captions[longest], _SHOWN)!r}: {' '.join(settings)} takes them {extent}"
    )
