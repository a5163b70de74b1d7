"""The store's error that a user can fix, and what to type for an optional part that is missing."""

from __future__ import annotations


class StoreError(Exception):
    """A database that cannot be opened, read or written; `hint` says what to type next, in tracebacks too."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint
        if hint:
            self.add_note(hint)


def install_extra(name: str) -> str:
    """The command that installs an extra of captionbench (`[project.optional-dependencies]`), for hints."""
    return f"uv sync --inexact --extra {name}"
