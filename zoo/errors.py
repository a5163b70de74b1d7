"""The zoo's error for what a user can put right."""

from __future__ import annotations


class ZooError(Exception):
    """An unknown model, a wrong argument or an unfitting weight; `hint` says what to type next."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint
