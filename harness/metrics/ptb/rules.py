"""The tables and patterns of the PTB tokenizer, derived by probing the Java program with examples.

One regular expression for each kind of token; `ptb.python` takes the longest match at each position, on a tie the
first.
"""

from __future__ import annotations

import re
from importlib import resources
from typing import Final


def _sections() -> dict[str, list[str]]:
    """The words of each section of the table."""
    sections: dict[str, list[str]] = {}
    text = (resources.files("harness.metrics.ptb") / "tables.txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        if line.startswith("["):
            words = sections.setdefault(line.strip("[]"), [])
        elif not line.startswith("#"):
            words += line.split()
    return sections


def _character_class(spans: list[str]) -> str:
    """Ranges of hexadecimal code points as the inside of a regular expression's class."""
    return "".join("-".join(re.escape(chr(int(end, 16))) for end in span.split("-")) for span in spans)


_TABLES: Final = _sections()
ABBREVIATIONS: Final = frozenset(_TABLES["abbreviations"])
CAPITAL_ABBREVIATIONS: Final = ABBREVIATIONS | frozenset(_TABLES["capital abbreviations"])

SPLIT_WORDS: Final = {
    "cannot": ("can", "not"),
    "gimme": ("gim", "me"),
    "gonna": ("gon", "na"),
    "gotta": ("got", "ta"),
    "lemme": ("lem", "me"),
    "wanna": ("wan", "na"),
}
RENAMED: Final = {
    "½": "1/2",
    "¼": "1/4",
    "¾": "3/4",
    "⅓": "1/3",
    "⅔": "2/3",
    "¢": "cents",
    "£": "#",
    "€": "$",
    "¤": "$",
    "₠": "$",
    "&amp;": "&",
    "&lt;": "<",
    "&gt;": ">",
}
BRACKETS: Final = {"(": "-lrb-", ")": "-rrb-", "[": "-lsb-", "]": "-rsb-", "{": "-lcb-", "}": "-rcb-"}
# Punctuation that COCO removes, and the tokenizer's escapes of it.
DROPPED: Final = frozenset(
    [
        *"'\"`.?!,:;-–—―‘’‛‹›“”«»…",
        *("--", "---", "----", "''", "``", "&quot;", "&apos;", "&nbsp;", "&mdash;", "&ndash;"),
    ]
)
# Windows-1252's punctuation where Latin-1 has controls, and the soft hyphen, which vanishes within words.
PREPARED: Final = str.maketrans(dict(zip("\x80\x91\x92\x93\x94\x96\x97", "€‘’“”–—", strict=True)) | {"\u00ad": None})

_LETTERS, _DIGITS, _SYMBOLS = (_character_class(_TABLES[name]) for name in ("letters", "digits", "symbols"))
_L: Final = f"[{_LETTERS}]"
_D: Final = f"[{_DIGITS}]"
_A: Final = f"[{_LETTERS}{_DIGITS}]"
_Q: Final = "['’]"
_PART: Final = r"[A-Za-z0-9]+(?:-[A-Za-z]+)*"
NOT: Final = "[nN](?:['’‘‛`]|&apos;)[tT]"
CLITIC: Final = "(?:['’]|&apos;)(?:[sSdDmM]|[lL][lL]|[rR][eE]|[vV][eE])(?![A-Za-z])"
_TAG: Final = (
    r"</[A-Za-z][\w:.-]*\ *>|<[!?]?[A-Za-z][A-Za-z0-9_:.-]*"
    r"""(?:\ +[A-Za-z][A-Za-z0-9_:.-]*(?:\ *=\ *(?:"[^"<>]*"|'[^'<>]*'))?)*\ *[/?]?\ *>"""
)
_VOWEL_WORD: Final = rf"[A-Za-z]+(?<=[A-Za-z][aeiouyAEIOUY])(?!{CLITIC}){_Q}[aeiouA-Z][A-Za-z]*"
_STOP: Final = r"(?:\.(?=[,;:]))"  # a full stop stays with its word before other punctuation

_PATTERNS: Final = {
    "word": rf"{_A}+{_STOP}?",
    "compound": rf"(?:[dDlLoO]{_Q})?{_A}+(?:[.,]{_D}+)?(?:\.?[-_‐‑֊](?:[dDlLoO]{_Q})?{_A}+)+{_STOP}?",
    "elision": rf"(?:[dlno](?!{CLITIC}){_Q}{_A}{{2,}}(?:[-_]{_A}+)*|[A-HJ-XZ](?!{CLITIC}){_Q}[A-Za-z]{{2,}}"
    rf"|{_VOWEL_WORD}){_STOP}?",
    "fixed": rf"(?i:c'est|s'mores|c'mon|e'er|ev'ry|li'l|nat'l|[dljD]{_Q}|dunkin{_Q})"
    rf"|[yY]{_Q}(?=[A-Za-z])|[oO][lL]{_Q}(?![A-Za-z])"
    r"|[cC]\+\+|[cCfF]\#",
    "short": rf"'[tT](?=[iI][sS]|[wW][aA][sS])|{_Q}(?i:em|till?|cause|n{_Q})|'[nN](?=\s|$)|’[nN]"
    rf"|{_Q}\d\d(?:[sS]|(?=\s|$))",
    "acronym": r"(?:[A-Za-z0-9]+-)*(?:[A-Za-z]\.){2,}|(?:[A-Za-z0-9]+-)+(?:[A-Za-z]\.){2,}|(?i:ph\.d\.)",
    "dotted": rf"{_L}{_A}*(?:[.!?]{_L}{_A}*)+(?:\.?-{_A}+)*{_STOP}?|www\.{_A}+(?:\.{_A}+)+",
    "slashed": rf"{_PART}/{_PART}(?:/{_PART})?",
    "ampersand": r"[A-Z]+(?:&(?:amp;)?[A-Z]+(?![a-z]))+|[A-Z]+(?:&(?:amp;)?[A-Z]+)+",
    "currency": r"[A-Z]+\$",
    "number": rf"[-+]?{_D}*(?:[.,:]{_D}+)+|[-+]?{_D}+",
    "fraction": r"(?:\d{1,4}[- \u00a0])?\d{1,4}[/⁄]\d{1,4}",
    "telephone": r"\(\d{2,3}\)[ \u00a0]?\d{3,4}[- \u00a0]?\d{4,5}"
    r"|(?:\+\d{1,3}[ \u00a0])?\d{2,4}[ \u00a0]\d{3,4}[ \u00a0]\d{4,5}",
    "tag": _TAG,
    "entity": r"&(?i:amp|lt|gt|nbsp|apos|mdash|ndash);|&quot;|&\#\d+;"
    r"|[A-Za-z]*&[A-Za-z](?:acute|grave|circ|uml);[A-Za-z]*",
    "address": r"""(?i:https?://[^\s"<>|()]+\.[^\s"<>|()]*[^\s"<>|().,!?-])"""
    r"""|(?:[A-Za-z]\w*\.)+(?i:com|net|org|edu)/[^\s"<>|()]+[^\s"<>|().,!?-]"""
    r"""|[A-Za-z0-9][^\s"<>|()]*@(?:[^\s"<>|().]+\.)*[^\s"<>|().!?,;:]+""",
    "name": rf"@[A-Za-z_][A-Za-z0-9_]*|\#{_L}+",
    "face": r"(?:[<>]?[:;=]['o-]?[()DPpdO\\|@]|[:;=][\[\]])(?![A-Za-z0-9])|\^_\^|>_<|-_-",
    "run": r"[!?]{2,}|\*{2,}|\#{2,}|@{2,}|_+|<<|>>|-{2,}|''|``|\.{3,}",
    "clitic": rf"{CLITIC}|{NOT}",
    "symbol": rf"[{_SYMBOLS}]|[!-/:-@\[-`{{-~]|[–—―‘’‛‹›“”«»…½¼¾⅓⅔¢£€¤₠]",
}
PATTERNS: Final = [re.compile(pattern) for pattern in _PATTERNS.values()]
SINGLE_LETTER: Final = re.compile(r"[A-Za-z]\.")
ABBREVIATION: Final = re.compile(r"([A-Za-z]{2,})\.")
_BEFORE_NUMBER: Final = "art|ca|figs?|nos?|op|pp?|prop"
NUMBERED: Final = re.compile(rf"(?i:{_BEFORE_NUMBER})\.(?=[ \n]?\d)")
WORD_BEFORE_NOT: Final = re.compile(rf"[A-Za-z]*[A-MO-Za-mo-z](?={NOT})")
PLAIN_WORD: Final = re.compile(r"[A-Za-z]+(?=\s|$)")
IS_CLITIC: Final = re.compile(CLITIC)
IS_NOT: Final = re.compile(NOT)
_STARTERS: Final = "|".join(f"{word.capitalize()}|{word.upper()}" for word in _TABLES["starters"])
STARTER: Final = re.compile(rf"\s+(?:{_STARTERS}|{_TAG})\s")

# Captions in which a token may hold a space, or depend on what follows the space.
CONTEXT: Final = re.compile(rf"<|[\d)][ \u00a0]\d|(?:^|[^A-Za-z])(?:[A-Za-z]|(?i:{_BEFORE_NUMBER}))\.(?:\s|$)")
