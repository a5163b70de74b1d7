"""Atomic file writes: a file is complete or absent, even if the process is killed."""

from __future__ import annotations

import errno
import glob
import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_ABANDONED_S = 24 * 3600


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the same folder; on a clean exit it replaces `path` atomically.

    A link stays, and the file that it leads to is replaced.

    Raises:
        OSError: `path` is there and is not a regular file (a device, a pipe, a folder), or it cannot be written.
    """
    target = _regular(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    _sweep(target)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
    try:
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write `text` (UTF-8) to `path` atomically."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _sweep(target: Path) -> None:
    """Remove what was begun more than a day ago: its writer was killed."""
    for path in target.parent.glob(f".{glob.escape(target.name)}.*.partial"):
        with suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > _ABANDONED_S:
                path.unlink()


def _regular(path: Path) -> Path:
    """The file that `path` leads to through all links; OSError where something else than a file is there."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        mode = None
    if mode is not None and not stat.S_ISREG(mode):
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        # A rename would put a file in the place of the device or pipe, for every program of the machine.
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return Path(os.path.realpath(path))
