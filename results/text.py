"""Text that comes from data, made fit for a terminal or a page."""

import re

# Control characters other than tabs and line breaks, a carriage return without a line break, bidirectional overrides,
# lone surrogates, and what is no character at all.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]|\r(?!\n)"
)


def printable(text: str) -> str:
    """The text with a replacement sign for every character that could disturb a page or a terminal."""
    return _UNPRINTABLE.sub("\ufffd", text)
