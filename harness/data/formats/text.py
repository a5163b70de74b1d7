"""Text of files in the encodings that people have."""

import codecs
from pathlib import Path

from harness.utils.errors import BenchError
from harness.utils.json_io import read_file, to_utf8

_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


def read_encoded(path: Path) -> str:
    """The text of a file in UTF-8, with or without a byte order mark, or in UTF-16 with one, gzipped or not.

    Raises:
        BenchError: the file cannot be read, or has another encoding.
    """
    return decode(read_file(path), path)


def lines_of(text: str) -> list[str]:
    """The lines of a text, split at line feeds only: captions may contain U+2028, at which `str.splitlines` splits."""
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]


def decode(raw: bytes, path: Path) -> str:
    """As `read_encoded`, of bytes that were read."""
    encoding = next((name for mark, name in _MARKS.items() if raw.startswith(mark)), "utf-8")
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError as error:
        raise BenchError(
            f"{path} is not text in UTF-8: byte {error.start} is {raw[error.start]:#04x}",
            to_utf8(path),
        ) from error
