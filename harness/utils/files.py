"""Names and files that come from outside, refused with one sentence; how they are read is in `results.files`."""

import os
import re
import shutil
from pathlib import Path, PurePosixPath, PureWindowsPath

from harness.utils.errors import BenchError
from results.errors import without_passwords
from results.files import check_regular

_SHOWN = 100
_PLAIN_NAMES = re.compile(r"[A-Za-z0-9_][\w.-]*(?:/[A-Za-z0-9_][\w.-]*)*", re.ASCII)
"""Paths of nearly all data sets, in which nothing needs to be looked at."""


class RefusedPath(Exception):  # noqa: N818 - it names the path, not the failure
    """A file name in an annotation that is refused; the message names it and the reason."""


def require_file(path: Path, name: str, hint: str | None = None) -> None:
    """BenchError where `path`, named by `what`, is no regular file; it is not opened, so that no pipe is waited for."""
    try:
        check_regular(path)
    except OSError as error:
        raise BenchError(f"{name} {shortened(str(path))} cannot be read: {reason(error)}", hint) from error


def require_utf8(path: Path, name: str, hint: str) -> None:
    """BenchError where a path is no text in UTF-8, as databases, JSON and reports hold it."""
    try:
        str(absolute(path)).encode()
    except UnicodeEncodeError as error:
        raise BenchError(f"{name} {shortened(str(path))}: its name is not text in UTF-8", hint) from error


def expanded(path: str | Path) -> Path:
    """The path with `~` and `~user` replaced by the home folder; BenchError where there is no such user."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise BenchError(
            f"{shortened(str(path))}: there is no user {shortened(Path(path).parts[0][1:])!r} on this machine",
            "write the folder out, or ./~NAME where the name really begins with ~",
        ) from error


def absolute(path: Path) -> Path:
    """The absolute path with all links followed; those of a loop stay, and opening the file then says so."""
    return Path(os.path.realpath(path))


def first_match(file: Path, pattern: str) -> str | None:
    """What the group of a pattern finds first in the lines of a file, as the system's are; None where nothing is."""
    try:
        match = re.search(pattern, file.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
    except OSError:
        return None
    return match[1].strip() if match else None


def disk_of(path: Path) -> tuple[Path, int]:
    """What is there of a folder that may not be made yet, and the free bytes of its disk."""
    existing = next(folder for folder in (absolute(path), *absolute(path).parents) if folder.exists())
    return existing, shutil.disk_usage(existing).free


def reason(error: Exception) -> str:
    """Why a file is refused, on one line, without the path, which the caller names."""
    text = (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def shortened(text: str, most: int = _SHOWN) -> str:
    """A value as messages show it: no password of a URL, and cut in the middle where it is longer than `most`."""
    text = without_passwords(text)  # before a cut takes away what tells it
    if len(text) <= most:
        return text
    half = (most - 5) // 2
    return f"{text[:half]} ... {text[-half:]}"


def plain_path(text: str) -> str:
    """The path, plain ("./a" is "a"); RefusedPath if it may lead out of a folder on any system, or is unprintable."""
    if _PLAIN_NAMES.fullmatch(text):
        return text
    posix = PurePosixPath(text)
    windows = PureWindowsPath(text)
    if not text.isprintable():
        raise RefusedPath(f"{text!a} has unprintable characters")
    if posix.is_absolute() or windows.drive or windows.root or ".." in posix.parts or ".." in windows.parts:
        raise RefusedPath(f"{text!r} leads out of the data set's folder")
    return str(posix)
