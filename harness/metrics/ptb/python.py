"""The Penn Treebank tokenizer of COCO's evaluation, in Python.

Equal to Stanford's Java tokenizer as COCO calls it (CoreNLP 3.4.1 with -preserveLines -lowerCase, punctuation removed)
on every caption of COCO 2014, nocaps, Flickr8k and Flickr30k. The rules were derived by probing the Java program
with examples; for text unlike captions (long URLs, markup, rare scripts) the two may differ.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from harness.data.formats import sanitise_caption
from harness.metrics.ptb import rules

_CACHED_CHUNKS: Final = 200_000


class _Chunks(dict[str, str]):
    """Tokens of a piece of caption between spaces; cached, since captions share most of their words."""

    def __missing__(self, chunk: str) -> str:
        tokens = " ".join(_lex(chunk, ""))
        if len(self) < _CACHED_CHUNKS:
            self[chunk] = tokens
        return tokens


_chunks: Final = _Chunks()


def tokenize_ptb(captions: Sequence[str]) -> list[str]:
    """Tokens of each caption, joined by spaces, in the order given.

    As in the original, the start of the next caption decides whether "K." at the end of a caption keeps its full stop,
    so callers fix the order.
    """
    lines = [sanitise_caption(caption).translate(rules.PREPARED) for caption in captions]
    tokenized = []
    for number, line in enumerate(lines):
        if rules.CONTEXT.search(line):
            tokenized.append(" ".join(_lex(line, _following(lines, number))))
        else:
            tokenized.append(" ".join(filter(None, map(_chunks.__getitem__, line.split()))))
    return tokenized


def _following(lines: Sequence[str], number: int) -> str:
    """The text after a line, as far as the next line that is not empty."""
    following = []
    for line in lines[number + 1 :]:
        following.append("\n" + line)
        if line.strip():
            following.append("\n")
            break
    return "".join(following)


def _lex(line: str, following: str) -> list[str]:
    """The tokens of a line without punctuation."""
    text = line + following
    tokens: list[str] = []
    at, end = 0, len(line)
    while at < end:
        if text[at].isspace():
            at += 1
            continue
        stop = _token_end(text, at, end)
        if stop == at:  # a character that the tokenizer has no token for
            at += 1
            continue
        tokens += _written(text[at:stop])
        at = stop
    return tokens


def _token_end(text: str, at: int, end: int) -> int:
    plain = rules.PLAIN_WORD.match(text, at, end)
    if plain:
        return plain.end()
    stop = max((found.end() for pattern in rules.PATTERNS if (found := pattern.match(text, at, end))), default=at)
    cut = rules.WORD_BEFORE_NOT.match(text, at, end)
    if cut and stop <= cut.end() + 3:  # the word before n't, unless a longer token swallows both
        return cut.end()
    for pattern in (rules.SINGLE_LETTER, rules.ABBREVIATION, rules.NUMBERED):
        found = pattern.match(text, at)
        if found and found.end() > stop and _keeps_stop(pattern, found, text):
            stop = found.end()
    return stop


def _keeps_stop(pattern: re.Pattern[str], found: re.Match[str], text: str) -> bool:
    """Whether the full stop that `found` ends with belongs to the token."""
    if pattern is rules.SINGLE_LETTER:
        return not rules.STARTER.match(text, found.end())
    if pattern is rules.NUMBERED:
        return True
    word = found[1]
    return word.lower() in (rules.ABBREVIATIONS if word[0].islower() else rules.CAPITAL_ABBREVIATIONS)


def _written(token: str) -> tuple[str, ...]:
    """The token as the tokenizer writes it, in lower case: none for punctuation, two for "cannot"."""
    token = token.lower()
    if token in rules.DROPPED or (token[0] == "." and not token.strip(".")):
        return ()
    if token in rules.SPLIT_WORDS:
        return rules.SPLIT_WORDS[token]
    if token in rules.RENAMED:
        return (rules.RENAMED[token],)
    if len(token) > 1 and token[0] in "'’&" and rules.IS_CLITIC.fullmatch(token):
        token = "'" + token.removeprefix("&apos;").lstrip("'’")
    if rules.IS_NOT.fullmatch(token):
        token = "n`t" if token[1] in "‘‛`" else "n't"
    for bracket, name in rules.BRACKETS.items():
        token = token.replace(bracket, name)
    return (token.replace(" ", "\u00a0").replace("&amp;", "&"),)
