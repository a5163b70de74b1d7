"""The store's error that a user can fix, and what to type for an optional part that is missing."""

import re

_PASSWORD = re.compile(r"(://[^\s:/@]*):[^\s'\"]*@")  # to the last @, since passwords are typed that hold one


class StoreError(Exception):
    """A database that cannot be opened, read or written; `hint` says what to type next, in tracebacks too."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(without_passwords(message))
        self.hint = hint and without_passwords(hint)
        if self.hint:
            self.add_note(self.hint)


def without_passwords(text: str) -> str:
    """The text with stars for the password of each URL in it."""
    return _PASSWORD.sub(r"\1:***@", text)


def install_extra(name: str) -> str:
    """The command that installs an extra of captionbench (`[project.optional-dependencies]`), for hints."""
    return f"uv sync --inexact --extra {name}"
