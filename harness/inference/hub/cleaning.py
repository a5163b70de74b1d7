"""Named rules that shorten what a chatty model says to its caption; none is used unless it is asked for and signed."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from harness.utils.errors import BenchError

_SENTENCE = re.compile(r".*?[.!?](?=\s|$)")
_QUOTES: Final = (('"', '"'), ("'", "'"), ("\u201c", "\u201d"), ("\u2018", "\u2019"))


def _without_prompt(caption: str, prompt: str) -> str:
    """Less the prompt where the caption begins or ends with it, in capitals or not."""
    asked, said = prompt.strip().casefold(), caption.strip()
    if asked and said.casefold().startswith(asked):
        said = said[len(asked) :].lstrip(" :,\n")
    if asked and said.casefold().endswith(asked):
        said = said[: -len(asked)].rstrip()
    return said


def _without_quotes(caption: str, _: str) -> str:
    """Less one pair of quotes around the whole."""
    for begin, end in _QUOTES:
        if len(caption) > 1 and caption.startswith(begin) and caption.endswith(end):
            return caption[1:-1].strip()
    return caption


def _first_sentence(caption: str, _: str) -> str:
    """Up to the first stop before a space, within the first line."""
    first = caption.strip().partition("\n")[0]
    found = _SENTENCE.match(first)
    return first if found is None else found[0].strip()


_RULES: Final[dict[str, Callable[[str, str], str]]] = {
    "prompt": _without_prompt,
    "quotes": _without_quotes,
    "first-sentence": _first_sentence,
}
"""In the order in which they are used, whatever the order in which they are asked for."""


def choose_rules(asked: str | None) -> tuple[str, ...]:
    """The rules of a comma-separated list, in their order of use; none for None.

    Raises:
        BenchError: a rule that does not exist, or none at all.
    """
    if asked is None:
        return ()
    words = set(filter(None, map(str.strip, asked.split(","))))
    if not words or words - _RULES.keys():
        unknown = ", ".join(sorted(words - _RULES.keys())) or "it names none"
        raise BenchError(f"--clean: no such rule: {unknown}", f"the rules are {', '.join(_RULES)}, separated by commas")
    return tuple(rule for rule in _RULES if rule in words)


def clean(caption: str, prompt: str, rules: Sequence[str]) -> str:
    """The caption after all rules of `choose_rules`."""
    for rule in rules:
        caption = _RULES[rule](caption, prompt)
    return caption
