"""How captions become words, and whose METEOR reads them: choices that vocabulary and metrics share."""

import re
from typing import Final, Literal

from harness.utils.errors import BenchError
from harness.utils.files import shortened

WordTokenizerName = Literal["characters", "zh", "ja", "vi"]
"""Tokenizers of languages whose words no spaces part (`harness.data.word_tokenizers`)."""
TokenizerName = Literal["python", "java", "characters", "zh", "ja", "vi"]
"""`python` and `java` are COCO's PTB tokenizer, for languages that write spaces between words."""
_CODE: Final = re.compile("[a-z]{2}")
_METEORS_CODES: Final = {"cs": "cz", "sv": "se"}
"""METEOR's own codes where they are not those of ISO 639-1."""


def parse_language(code: str) -> str:
    """The language of `--language` as METEOR names it: `cs` is its `cz`; BenchError for what is no code."""
    if not _CODE.fullmatch(code):
        raise BenchError(f"--language {shortened(code)!r} is no code of two letters", "write one, as --language de")
    return _METEORS_CODES.get(code, code)
