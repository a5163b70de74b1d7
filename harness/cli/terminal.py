"""What reaches the terminal: no control character of a name, which could hide, overwrite or forge what is said."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any, Final, TextIO

from rich import control

from harness.utils.errors import BenchError

_CONTROLS: Final = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n"}
_SHOWN: Final = re.compile(r"\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_BAR: Final = re.compile(r"\r[^\x00-\x1f\x7f-\x9f]*|(?:\x1b\[A)+")
"""What the progress bars of other libraries write: a line over another, or the way back up to it."""


class _Stream:
    """A standard stream that shows control characters as escapes; rich writes past it, and shows them in the same way.

    Rich asks a stream for `rich_proxied_file`, so that its own sequences of colours and bars arrive as they are.
    """

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream

    def write(self, text: str) -> int:
        plain = text if _BAR.fullmatch(text) else _SHOWN.sub(lambda found: _CONTROLS[ord(found[0])], text)
        self.rich_proxied_file.write(plain)
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


def guard_streams() -> None:
    """Have standard output and error show control characters as escapes.

    Raises:
        BenchError: standard output is closed; files that are opened would take its place.
    """
    if sys.stdout is None:
        raise BenchError("standard output is closed", "leave >&- out, or send it to a file or to /dev/null")
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - until the process ends
    # Of a text rich takes some control characters away by this table, which it has no option for.
    control._CONTROL_STRIP_TRANSLATE.update(_CONTROLS)
    sys.stdout, sys.stderr = _Stream(sys.stdout), _Stream(sys.stderr)
