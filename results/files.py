"""Read files that others wrote: regular files alone, of a bounded size.

A pipe would be waited for without end, and a device such as /dev/zero read until memory is full.
"""

from __future__ import annotations

import errno
import gc
import json
import math
import os
import stat
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from results.errors import StoreError

if TYPE_CHECKING:
    from pydantic import BaseModel

Model = TypeVar("Model", bound="BaseModel")

LIMIT_VARIABLE: Final = "BENCH_MAX_FILE_GB"
DEFAULT_LIMIT_GB: Final = 1.0

_KINDS: Final = (
    (stat.S_ISDIR, errno.EISDIR, "it is a folder"),
    (stat.S_ISFIFO, errno.EINVAL, "it is a pipe, not a regular file: write what comes out of it to a file first"),
    (stat.S_ISSOCK, errno.EINVAL, "it is a socket, not a regular file"),
    (lambda mode: not stat.S_ISREG(mode), errno.EINVAL, "it is a device, not a regular file"),
)


def check_regular(path: Path) -> int:
    """The size in bytes of a regular file, links followed, without opening it."""
    try:
        stat = path.stat()
    except ValueError as error:  # a zero byte in the name
        raise OSError(errno.EINVAL, str(error), str(path)) from error
    for is_kind, error_number, reason in _KINDS:
        if is_kind(stat.st_mode):
            raise OSError(error_number, reason, str(path))
    return stat.st_size


def read_bytes(path: Path) -> bytes:
    """The content of a regular file that is no larger than `limit_bytes`."""
    limit = limit_bytes()
    check_size(path, check_regular(path), limit)
    # Never waits, should another program put a pipe in the file's place in this moment.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(descriptor, "rb") as file:
        content = file.read(limit + 1)  # files of /proc and such tell no size
    check_size(path, len(content), limit)
    return content


def read_text(path: Path) -> str:
    content = read_bytes(path)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise OSError(errno.EILSEQ, f"it is not text in UTF-8, from byte {error.start} on", str(path)) from error


def read_model(model: type[Model], path: Path, what: str, hint: str) -> Model:
    """The content of a JSON file as a pydantic model; StoreError with the hint names the first fault."""
    from pydantic import ValidationError

    try:
        text = read_bytes(path).decode("utf-8")
        load_json(text)  # of a key that is there twice, pydantic would take the last
        return model.model_validate_json(text)
    except OSError as error:
        raise StoreError(f"cannot read the {what} {path}: {error.strerror}", hint) from error
    except ValidationError as error:
        first = error.errors()[0]
        where = map(str, first["loc"])
        fault = first["msg"].removeprefix("Value error, ")
        raise StoreError(
            f"{path} is not a {what}: {': '.join(filter(None, ('.'.join(where), fault)))}", hint
        ) from error
    except ValueError as error:
        raise StoreError(f"{path} is not a {what}: {error}", hint) from error


@contextmanager
def without_collection() -> Iterator[None]:
    """No search for cycles within the block: among millions of new objects it takes longer than making them."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def load_json(text: str | bytes) -> Any:
    """The content of JSON text in which no object has a key twice: of such, all values but the last would be lost."""
    try:
        with without_collection():
            return json.loads(text, object_pairs_hook=_object)
    except RecursionError as error:
        raise ValueError("its brackets are nested too deeply") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        [(twice, _)] = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"an object has the key {twice[:60]!r} twice")
    return content


def check_size(path: Path, size: int, limit: int, what: str = "it has") -> None:
    """OSError where `size` bytes are more than `limit`; `what` begins the reason."""
    if size > limit:
        raise OSError(
            errno.EFBIG,
            f"{what} more than {limit / 1e9:,g} GB, the most that is read; if it is meant, set {LIMIT_VARIABLE} higher",
            str(path),
        )


def limit_bytes() -> int:
    """Most bytes of a file that is read as a whole: 1 GB, or what the environment says."""
    text = os.environ.get(LIMIT_VARIABLE, "")
    try:
        gigabytes = float(text) if text.strip() else DEFAULT_LIMIT_GB
    except ValueError:
        gigabytes = math.nan
    if not (math.isfinite(gigabytes) and gigabytes > 0):
        raise StoreError(
            f"the environment's {LIMIT_VARIABLE}={text[:40]!r} is not a number of gigabytes above 0",
            f"for example {LIMIT_VARIABLE}=4, or unset it for {DEFAULT_LIMIT_GB:g}",
        )
    return int(gigabytes * 1e9)
