"""Whatever no command expects becomes one message: what failed, where its traceback is, and what to type next."""

from __future__ import annotations

import errno
import os
import platform
import sys
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import harness
from harness.utils.errors import BenchError
from harness.utils.files import shortened
from harness.utils.plugins import place_in_plugin
from harness.utils.workspace import user_cache
from results.errors import without_passwords

BUG_EXIT_CODE = 70
"""EX_SOFTWARE of sysexits.h: neither success, nor a finding (1), nor wrong input (2)."""

_LONGEST = 300  # characters of an error's own message


def explained(error: BaseException, words: Sequence[str]) -> tuple[BenchError, int]:
    """The one message for an error that no command expects, and the exit code.

    A plug-in's errors, the system's, and too little memory, are the user's to put right; anything else is a bug, and
    logged.

    Args:
        words: the command line, without the program's name.
    """
    again = f"`{_command(['--debug', *(word for word in words if word != '--debug')])}` shows where it happened"
    if (place := place_in_plugin(error)) is not None:
        return BenchError(f"the plug-in's code failed at {place}: {_described(error)}", again), 2
    if isinstance(error, OSError) and error.errno is not None:
        reason = error.strerror or os.strerror(error.errno)
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            place = f" (at {error.filename})" if error.filename else ""
            return BenchError(f"the disk is full{place}", "free some space, then repeat the command"), 2
        if error.errno == errno.ENAMETOOLONG:
            return BenchError(
                f"the name {shortened(os.fsdecode(error.filename or ''))} is longer than the system takes",
                "check what was typed; the name of a file or folder has at most 255 bytes",
            ), 2
        place = f"{error.filename}: " if error.filename else "the system refused: "
        return BenchError(f"{place}{reason}", f"check the file and its permissions; {again}"), 2
    if isinstance(error, MemoryError):
        return BenchError(
            "there is not enough memory for this command",
            f"try smaller sizes, batches or beams, or fewer --jobs; {again}",
        ), 2
    if isinstance(error, RecursionError):
        return BenchError(
            "something given to this command is nested too deeply",
            f"look for a file or value with hundreds of brackets inside each other; {again}",
        ), 2
    log = write_log(error, words)
    where = f"the traceback is in {log}" if log else "no log could be written"
    return BenchError(
        without_passwords(f"this is a bug in captionbench: {_described(error)}"),
        f"the command was `{_command(words)}`; {where}: report both; {again}",
    ), BUG_EXIT_CODE


def _described(error: BaseException) -> str:
    """The class of an error and what it says, on one line."""
    said = " ".join(str(error).split())
    said = said if len(said) <= _LONGEST else said[:_LONGEST] + " ..."
    return f"{type(error).__name__}: {said}".removesuffix(": ")


def write_log(error: BaseException, words: Sequence[str]) -> Path | None:
    """Write the traceback, with the command and versions, below the user's cache, or else in the folder of temporary
    files; None where neither can be written.
    """
    import tempfile

    now = datetime.now(UTC)
    lines = [
        f"captionbench {harness.__version__}, Python {platform.python_version()}, {platform.platform()}",
        f"{now:%Y-%m-%d %H:%M:%S} UTC",
        _command(words),
        "",
        traceback_of(error),
    ]
    for folder in (user_cache() / "logs", Path(tempfile.gettempdir())):
        log = folder / f"bench-{now:%Y%m%d-%H%M%S}-{os.getpid()}.log"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with log.open("x", encoding="utf-8", errors="replace") as file:  # never into what is there already
                file.write("\n".join(lines))
        except OSError:
            continue
        return log
    return None


def traceback_of(error: BaseException) -> str:
    """The traceback, without passwords of databases."""
    return without_passwords("".join(traceback.format_exception(error)))


def leave_broken_pipe() -> None:
    """Send what is still to be printed nowhere, so that the interpreter does not fail on it again at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _command(words: Sequence[str]) -> str:
    import shlex

    return without_passwords(shlex.join(["bench", *words]))
