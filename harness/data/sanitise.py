"""Sanitise captions for the line-based Java programs, without changing any score otherwise.

The tokenizer reads one caption per line, so a character that Java takes for a line end would silently assign every
later caption to the wrong image. METEOR separates the fields of a line by `|||`.
"""

from __future__ import annotations

from typing import Final

_LINE_ENDS: Final = "\n\r\v\f\u0085\u2028\u2029"
_CONTROLS: Final = "".join(map(chr, range(32))).replace("\t", "")
_TO_SPACE: Final = dict.fromkeys(map(ord, _LINE_ENDS + _CONTROLS), " ")
METEOR_SEPARATOR: Final = "|||"


def sanitise_caption(caption: str) -> str:
    r"""`caption` on one line of valid Unicode.

    Line and paragraph ends (\n \r \v \f U+0085 U+2028 U+2029) and the other control characters below U+0020 but tab
    (NUL among them) become a space, as pycocoevalcap does for \n and as the tokenizer does for the harmless ones.
    Unpaired surrogates, which JSON can carry and UTF-8 cannot, become U+FFFD; the tokenizer drops that. The controls
    U+0080 to U+009F stay, U+0085 excepted: the tokenizer reads them as Windows-1252 quotes and dashes.
    """
    return caption.translate(_TO_SPACE).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def sanitise_meteor_field(tokens: str) -> str:
    """Tokenised caption without METEOR's field separator.

    The same two replacements that pycocoevalcap makes on candidates; it leaves references alone, where a
    separator would silently count as one more reference.
    """
    return tokens.replace(METEOR_SEPARATOR, "").replace("  ", " ")
