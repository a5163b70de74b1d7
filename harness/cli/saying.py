"""How an error is said: one line, and what to type next on another."""

from __future__ import annotations

import re

from rich.console import Console
from rich.markup import escape

from harness.cli.last_resort import traceback_of
from harness.utils.errors import BenchError, wants_traceback
from harness.utils.files import shortened
from reports.errors import ReportError
from results.errors import StoreError
from zoo.errors import ZooError

_LONG_VALUE = re.compile(r"[^\s/]{256,}")  # longer than a name can be


def say_error(message: BenchError | ReportError | StoreError | ZooError, error: BaseException) -> None:
    """Print an error and what to do next on stderr; with --debug the traceback first."""
    console = Console(stderr=True, highlight=False)
    if wants_traceback():
        console.print(traceback_of(error), markup=False, soft_wrap=True)
    console.print(f"[bold red]error:[/] {escape(_cut(str(message)))}", soft_wrap=True)
    if message.hint:
        console.print(f"[bold]hint:[/] {escape(_cut(message.hint))}", soft_wrap=True)


def _cut(text: str) -> str:
    """A message in which names and values that no file can have are cut, as they were typed by mistake."""
    return _LONG_VALUE.sub(lambda value: shortened(value[0]), text)
