"""The error of the zoo that users can fix."""

from __future__ import annotations


class ZooError(Exception):
    """An unknown model, a wrong argument or mismatching weights; `hint` says what to type next."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its class name if it is empty."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def unreadable(error: Exception) -> str:
    """Why a file of tensors could not be read; torch raises a bare KeyError or AssertionError on bytes of no pickle."""
    if isinstance(error, LookupError | AssertionError | TypeError | AttributeError):
        return f"it is no torch file, or damaged ({type(error).__name__})"
    return first_sentence(error)


def first_sentence(error: BaseException) -> str:
    """The first sentence of it: for a damaged file, torch goes on to explain how to load it unsafely."""
    return first_line(error).partition(". ")[0]
