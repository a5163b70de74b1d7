"""Findings on the terminal or in a file."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from harness.utils.atomic import write_text
from harness.utils.errors import BenchError

if TYPE_CHECKING:
    from rich.console import Console

FILE_COLUMNS = 80


def check_out(out: Path | None) -> None:
    """BenchError, before any work, where `--out` is a folder."""
    if out is not None and out.is_dir():
        raise BenchError(f"--out {out} is a folder", "name a file")


def deliver(findings: str | Callable[[Console], None], out: Path | None) -> None:
    """Print a text or what a function prints; with `out`, write that file instead, whole or not at all.

    Raises:
        BenchError: the file cannot be written.
    """
    from rich.console import Console

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
    try:
        write_text(out, findings)
    except OSError as error:
        raise BenchError(f"cannot write --out {out}: {error.strerror}", "name another file") from error
