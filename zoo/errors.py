"""The zoo's error for what a user can put right."""

from __future__ import annotations


class ZooError(Exception):
    """An unknown model, a wrong argument or an unfitting weight; `hint` says what to type next."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


def first_line(error: BaseException) -> str:
    """What an error says first, or its kind where it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def first_sentence(error: BaseException) -> str:
    """The same without what follows: of a damaged file, torch goes on to say how to run what lies in it."""
    return first_line(error).partition(". ")[0]
