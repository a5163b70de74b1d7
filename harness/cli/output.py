"""Findings on the terminal or in a file; whatever cannot be written is one error that names the option."""

from __future__ import annotations

import errno
import io
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli.outputs import refuse_loss
from harness.utils.errors import BenchError
from harness.utils.workspace import Workspace

if TYPE_CHECKING:
    from rich.console import Console

FILE_COLUMNS = 80
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}


def check_out(out: Path | None, option: str = "--out") -> None:
    """BenchError, before any work, where a file cannot be written, or would replace something else."""
    if out is None:
        return
    mode = _mode(out, option)
    if mode is not None and stat.S_ISDIR(mode):
        raise BenchError(f"{option} {out} is a folder", "name a file")
    if mode is not None and (stat.S_ISBLK(mode) or stat.S_ISSOCK(mode)):
        kind = "a block device" if stat.S_ISBLK(mode) else "a socket"
        raise BenchError(f"{option} {out} is {kind}, which is never written to", "name a file")
    if mode is None:
        _check_parents(out, option)
    if mode is None or stat.S_ISREG(mode):
        with write_errors(out, option):
            refuse_loss(out, option)


def check_out_folder(folder: Path, option: str = "--out") -> None:
    """BenchError, before any work, where a folder cannot be written into, or something else would be replaced."""
    mode = _mode(folder, option)
    if mode is not None and not stat.S_ISDIR(mode):
        raise BenchError(f"{option} {folder} is not a folder", "name a folder, or one that does not exist yet")
    if mode is None:
        _check_parents(folder, option)
    refuse_loss(folder, option, folder=True)


@contextmanager
def write_errors(path: Path, option: str = "--out") -> Iterator[None]:
    """Turn the system's errors into a BenchError that names the option."""
    try:
        yield
    except OSError as error:
        raise _unwritable(path, option, error) from error


@contextmanager
def cache_errors(place: Workspace) -> Iterator[None]:
    """Turn errors of writing below a workspace into a BenchError; others, as of reading a picture, pass."""
    try:
        yield
    except OSError as error:
        below = isinstance(error.filename, str) and Path(error.filename).absolute().is_relative_to(
            place.root.absolute()
        )
        if error.errno not in _FULL and not below:
            raise
        raise BenchError(
            f"cannot write to the workspace {place.root}: {error.strerror}",
            "free some space there, or choose another with --workspace DIR",
        ) from error


def deliver(findings: str | Callable[[Console], None], out: Path | None, option: str = "--out") -> None:
    """Print a text or what a function prints; with `out`, write that file instead, whole or not at all.

    Links are followed. A device or a pipe, as /dev/stdout, is written into and stays what it is.

    Raises:
        BenchError: the file cannot be written.
    """
    from rich.console import Console

    from harness.utils.atomic import write_text

    if out is None:
        if isinstance(findings, str):
            sys.stdout.write(findings)
        else:
            findings(Console(highlight=False))
        return
    if not isinstance(findings, str):
        text = io.StringIO()
        findings(Console(file=text, width=FILE_COLUMNS, highlight=False))
        findings = text.getvalue()
    check_out(out, option)
    mode = _mode(out, option)
    with write_errors(out, option):
        if mode is not None and (stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)):
            _write_into(out, findings)
        else:
            write_text(out, findings)


def _write_into(path: Path, text: str) -> None:
    """Write to a character device or a pipe; OSError, instead of a wait for ever, where nothing reads the pipe."""
    descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    os.set_blocking(descriptor, True)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)


def _mode(path: Path, option: str) -> int | None:
    """What a path is, as `stat` tells; None where nothing is there, and it may be made."""
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):  # parents are looked at one by one
        return None
    except (OSError, ValueError) as error:  # a name that is too long, a loop of links, a zero byte
        raise _unwritable(path, option, error) from error


def _check_parents(path: Path, option: str) -> None:
    """BenchError where the nearest parent that is there is not a folder."""
    for parent in path.absolute().parents:
        mode = _mode(parent, option)
        if mode is None:
            continue
        if not stat.S_ISDIR(mode):
            raise BenchError(f"cannot write {option} {path}: {parent} is not a folder", "name another place")
        return


def _unwritable(path: Path, option: str, error: OSError | ValueError) -> BenchError:
    reason, hint = getattr(error, "strerror", None) or str(error), "name another file"
    if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
        hint = "free some space, or name a file on another disk"
    elif isinstance(error, OSError) and error.errno == errno.ENXIO:
        reason, hint = "nothing reads from it", "start the program that reads the pipe first, or name a file"
    return BenchError(f"cannot write {option} {path}: {reason}", hint)
