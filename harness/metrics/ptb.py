"""The Penn Treebank tokenizer of COCO's evaluation, in Python.

Equal to Stanford's Java tokenizer as COCO calls it (CoreNLP 3.4.1 with -preserveLines -lowerCase, punctuation removed)
on every caption of COCO 2014, nocaps, Flickr8k and Flickr30k. The rules were derived by probing the Java program
with examples; for text unlike captions (long URLs, markup, rare scripts) the two may differ.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from importlib import resources
from pathlib import Path
from typing import Final

from harness.config.evaluation import TokenizerName
from harness.data.formats.references import sanitise_caption
from harness.data.word_tokenizers import tokenize_words
from harness.metrics.java import JavaError, java_command, run_java


def _sections() -> dict[str, list[str]]:
    """The words of each section of the table."""
    sections: dict[str, list[str]] = {}
    text = (resources.files("harness.metrics") / "ptb.txt").read_text(encoding="utf-8")
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
    "joined": r"[A-Z]+(?:(?:\+|&(?:amp;)?)[A-Z]+(?![a-z]))+|[A-Z]+(?:(?:\+|&(?:amp;)?)[A-Z]+)+",
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


_CACHED_CHUNKS: Final = 200_000


@lru_cache(_CACHED_CHUNKS)
def _of_chunk(chunk: str) -> str:
    """Tokens of a piece of caption between spaces; cached, since captions share most of their words."""
    return " ".join(_lex(chunk, ""))


def tokenize_ptb(captions: Sequence[str]) -> list[str]:
    """Tokens of each caption, joined by spaces, in the order given.

    As in the original, the start of the next caption decides whether "K." at the end of a caption keeps its full stop,
    so callers fix the order.
    """
    lines = [_prepared(caption) for caption in captions]
    tokenized = []
    for index, line in enumerate(lines):
        if CONTEXT.search(line):
            tokenized.append(" ".join(_lex(line, _following(lines, index))))
        else:
            tokenized.append(" ".join(filter(None, map(_of_chunk, line.split()))))
    return tokenized


def _prepared(caption: str) -> str:
    if caption.isascii() and caption.isprintable():  # most are, and stay as they are
        return caption
    return sanitise_caption(caption).translate(PREPARED)


def _following(lines: Sequence[str], line_index: int) -> str:
    """The text after a line, as far as the next line that is not empty."""
    following = ""
    for following_index in range(line_index + 1, len(lines)):
        following += f"\n{lines[following_index]}"
        if lines[following_index].strip():
            return f"{following}\n"
    return following


def _lex(line: str, following: str) -> list[str]:
    """The tokens of a line without punctuation."""
    text = line + following
    tokens: list[str] = []
    position = 0
    end = len(line)
    while position < end:
        if text[position].isspace():
            position += 1
            continue
        stop = _token_end(text, position, end)
        if stop == position:  # a character that the tokenizer has no token for
            position += 1
            continue
        tokens += _written(text[position:stop])
        position = stop
    return tokens


def _token_end(text: str, position: int, end: int) -> int:
    plain = PLAIN_WORD.match(text, position, end)
    if plain:
        return plain.end()
    stop = max((match.end() for pattern in PATTERNS if (match := pattern.match(text, position, end))), default=position)
    cut = WORD_BEFORE_NOT.match(text, position, end)
    if cut and stop <= cut.end() + 3:  # the word before n't, unless a longer token swallows both
        return cut.end()
    for pattern in (SINGLE_LETTER, ABBREVIATION, NUMBERED):
        match = pattern.match(text, position)
        if match and match.end() > stop and _keeps_stop(pattern, match, text):
            stop = match.end()
    return stop


def _keeps_stop(pattern: re.Pattern[str], match: re.Match[str], text: str) -> bool:
    """Whether the full stop that `found` ends with belongs to the token."""
    if pattern is SINGLE_LETTER:
        return not STARTER.match(text, match.end())
    if pattern is NUMBERED:
        return True
    word = match[1]
    return word.lower() in (ABBREVIATIONS if word[0].islower() else CAPITAL_ABBREVIATIONS)


def _written(token: str) -> tuple[str, ...]:
    """The token as the tokenizer writes it, in lower case: none for punctuation, two for "cannot"."""
    token = token.lower()
    if token in DROPPED or (token[0] == "." and not token.strip(".")):
        return ()
    if token in SPLIT_WORDS:
        return SPLIT_WORDS[token]
    if token in RENAMED:
        return (RENAMED[token],)
    if len(token) > 1 and token[0] in "'’&" and IS_CLITIC.fullmatch(token):
        token = "'" + token.removeprefix("&apos;").lstrip("'’")
    if IS_NOT.fullmatch(token):
        token = "n`t" if token[1] in "‘‛`" else "n't"
    for bracket, name in BRACKETS.items():
        token = token.replace(bracket, name)
    return (token.replace(" ", "\u00a0").replace("&amp;", "&"),)


# The bracket names are upper case and the tokens lower case, so that brackets stay as tokens "-lrb-": a quirk of the
# original (pycocoevalcap/tokenizer/ptbtokenizer.py) that published scores depend on.
PUNCTUATION: Final = frozenset(
    ["''", "'", "``", "`", "-LRB-", "-RRB-", "-LCB-", "-RCB-", ".", "?", "!", ",", ":", "-", "--", "...", ";"]
)
_HEAP_MB: Final = 512


def tokenizer_jar() -> Path:
    """Path of the Stanford CoreNLP 3.4.1 jar inside pycocoevalcap."""
    return Path(str(resources.files("pycocoevalcap") / "tokenizer" / "stanford-corenlp-3.4.1.jar"))


def tokenize_java(captions: Sequence[str], *, java: Path, timeout_s: float) -> list[str]:
    """Tokens of each caption by Stanford's Java tokenizer, joined by spaces, in the order given.

    The same as `pycocoevalcap.tokenizer.ptbtokenizer`, without its faults: captions are passed by standard input (no
    file in the installed package), and the exit status is checked. As by `tokenize_ptb`, the order matters. JavaError
    where the tokenizer fails, takes longer than `timeout_s` or returns another number of lines.
    """
    if not captions:
        return []
    text = "\n".join(sanitise_caption(caption) for caption in captions)
    program = ("-cp", str(tokenizer_jar()), "edu.stanford.nlp.process.PTBTokenizer")
    command = java_command(java, *program, *("-preserveLines", "-lowerCase", "-encoding", "UTF-8"), heap_mb=_HEAP_MB)
    done = run_java("PTB tokenizer", command, timeout_s=timeout_s, stdin=text.encode())
    lines = done.stdout.decode("utf-8", "replace").split("\n")
    if len(lines) != len(captions):
        raise JavaError(f"PTB tokenizer: {len(captions)} captions went in, {len(lines)} lines came out")
    return [" ".join(token for token in line.rstrip().split(" ") if token not in PUNCTUATION) for line in lines]


def python_tokenizer(name: TokenizerName) -> Callable[[Sequence[str]], list[str]]:
    """The tokenizer of this name without Java: PTB's copy in Python has the tokens of the original."""
    if name == "python" or name == "java":
        return tokenize_ptb
    return partial(tokenize_words, name=name)


def tokenize_by_image(
    captions: Mapping[int, Sequence[str]], tokenize: Callable[[Sequence[str]], list[str]]
) -> dict[int, list[str]]:
    """Tokenised captions by image id, in the order given, which matters: callers keep that of the annotation file."""
    tokens = iter(tokenize([caption for texts in captions.values() for caption in texts]))
    return {image_id: [next(tokens) for _ in texts] for image_id, texts in captions.items()}
