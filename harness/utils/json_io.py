"""Read JSON files, gzipped or plain."""

import codecs
import gzip
import io
import shlex
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness.utils.errors import BenchError
from harness.utils.files import reason, shortened
from results.files import check_size, limit_bytes, load_json, read_bytes

_PIECE = 1 << 20


def read_json(path: Path) -> Any:
    """The content of a JSON file, plain or gzipped, as its bytes say; BenchError as `read_file` and `parse_json`."""
    return parse_json(read_file(path), path)


def read_json_or_lines(path: Path) -> Any:
    """As `read_json`; of several lines with a JSON value each, their list."""
    raw = read_file(path)
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):  # in which bytes do not show where lines end
        with suppress(UnicodeDecodeError):
            raw = raw.decode("utf-16").encode()
    return parse_json_or_lines(raw, path)


def parse_json_or_lines(raw: bytes, path: Path) -> Any:
    """The content of JSON text, or the list of the values of its lines.

    Raises:
        BenchError: neither is JSON; of lines that begin as such, it names the first that is none.
    """
    try:
        return parse_json(raw, path)
    except BenchError as parsing_failed:
        values: list[Any] = []
        for line_number, line in enumerate(raw.split(b"\n"), 1):
            if not line.strip():
                continue
            try:
                values.append(load_json(line))
            except ValueError as error:
                if not values and path.suffix != ".jsonl":
                    raise parsing_failed from None
                raise BenchError(f"{path}, line {line_number} is not valid JSON: {str(error)[:100]}") from error
        if len(values) > 1:
            return values
        raise


def read_file(path: Path) -> bytes:
    """The bytes of a regular file of bounded size, unpacked if it is gzipped; BenchError where there are none."""
    try:
        raw = read_bytes(path)
        return _unpacked(raw, path) if raw.startswith(b"\x1f\x8b") else raw
    except (OSError, EOFError, zlib.error) as error:
        raise BenchError(
            f"{shortened(str(path))} cannot be read: {reason(error)}", "name a file that is there and whole"
        ) from error


def parse_json(raw: bytes, path: Path) -> Any:
    """The content of JSON text; BenchError, which names the file, where it is not JSON."""
    try:
        return load_json(raw)
    except UnicodeDecodeError as error:
        raise BenchError(
            f"{path} is not valid JSON: it is not text in UTF-8, from byte {error.start} on", to_utf8(path)
        ) from error
    except ValueError as error:
        raise BenchError(f"{path} is not valid JSON: {error}") from error


def to_utf8(path: Path) -> str:
    """What to type for a text in another encoding."""
    name = shlex.quote(path.name)
    return f"convert it: iconv -f latin1 -t utf-8 {name} > {shlex.quote('utf8-' + path.name)}; or save it as UTF-8"


def _unpacked(raw: bytes, path: Path) -> bytes:
    """What is packed, whose size is counted first: a small file can hold a thousand times its size."""
    limit = limit_bytes()
    size = 0
    with gzip.GzipFile(fileobj=io.BytesIO(raw)) as packed:
        while size <= limit and (piece := packed.read(_PIECE)):
            size += len(piece)
    check_size(path, size, limit, "unpacked it has")
    return gzip.decompress(raw)
