"""Links that lead out of the report: addresses and arXiv numbers in what cards say of papers and code."""

from __future__ import annotations

import re

from markupsafe import Markup, escape

from reports.tables.numbers import printable

_LINK = re.compile(r"https?://[A-Za-z0-9.-]+(?::\d+)?(?:/[^\s<>\"'`{}|\\^]*)?|arXiv:(\d{4}\.\d{4,5})(?:v\d+)?")
_TRAILING = ".,;:!?)"
"""Signs that end a sentence rather than an address."""


def linked(text: str) -> Markup:
    """The text, escaped, with its http(s) addresses and arXiv numbers as links; anything else stays text."""
    text = printable(text)
    parts: list[Markup | str] = []
    end = 0
    for found in _LINK.finditer(text):
        shown = found[0].rstrip(_TRAILING)
        target = f"https://arxiv.org/abs/{found[1]}" if found[1] else shown
        link = Markup('<a class="out" rel="noreferrer" href="{}">{}</a>').format(target, shown)
        parts += [escape(text[end : found.start()]), link]
        end = found.start() + len(shown)
    return Markup("").join([*parts, escape(text[end:])])
