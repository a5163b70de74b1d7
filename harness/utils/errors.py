"""The error shown to users: one sentence, and what to type next."""

from __future__ import annotations


class BenchError(Exception):
    """An error that the user can fix.

    Args:
        message: what is wrong, naming the file, option or value.
        hint: what to type or do next; shown on a line of its own.
    """

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint
