"""Atomic file writes: a file is complete or absent, even if the process is killed."""

import hashlib
import os
import platform
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from results.files import check_regular

_BEGUN = re.compile(r"-(\d+)-[0-9a-f]{8}$")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the same folder; on a clean exit it replaces `path` atomically.

    A link stays, and its file is replaced. OSError where `path` is a device, a pipe or a folder, or not writable.
    """
    with suppress(FileNotFoundError):
        check_regular(path)  # a rename would put a file in the place of a device or pipe, for every program
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    _sweep(target.parent)
    temporary = target.with_name(f".{target.name}.{_here()}-{os.getpid()}-{secrets.token_hex(4)}")
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


@cache
def _sweep(folder: Path) -> None:
    """Remove what processes that were killed here had begun to write; once a folder."""
    for path in folder.glob(f".*.{_here()}-*-*"):
        if (begun := _BEGUN.search(path.name)) and not _is_alive(int(begun[1])):
            path.unlink(missing_ok=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError as error:  # of another user's process too
        return not isinstance(error, ProcessLookupError)
    return True


@cache
def _here() -> str:
    """Marks where process numbers mean the same: in one PID namespace, between two starts of one machine."""
    described = [platform.node()]
    with suppress(OSError):
        described += [Path("/proc/sys/kernel/random/boot_id").read_text(), str(Path("/proc/self/ns/pid").readlink())]
    return hashlib.sha256("\n".join(described).encode()).hexdigest()[:8]
