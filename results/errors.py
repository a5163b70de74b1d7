"""The store's error that a user can fix."""

from __future__ import annotations


class StoreError(Exception):
    """A database that cannot be opened, read or written; `hint` says what to type next, in tracebacks too."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint
        if hint:
            self.add_note(hint)
