"""The error of the zoo that users can fix."""

from collections.abc import Iterable


class ZooError(Exception):
    """An unknown model, a wrong argument or mismatching weights; `hint` says what to type next."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


def check_choice(argument: str, value: str, choices: Iterable[str]) -> None:
    """ZooError where the value of a model's argument is not one of its choices."""
    choices = tuple(choices)
    if value not in choices:
        raise ZooError(f"{argument} cannot be {value!r}", f"it is one of {', '.join(choices)}")


def check_at_least_1(**sizes: int) -> None:
    """ZooError naming the first argument that is below 1."""
    for argument, value in sizes.items():
        if value < 1:
            raise ZooError(f"{argument} must be at least 1, not {value}")


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its class name if it is empty."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def unreadable(error: Exception) -> str:
    """Why a file of tensors could not be read, where torch may raise a bare KeyError or AssertionError."""
    if isinstance(error, LookupError | AssertionError | TypeError | AttributeError):
        return f"it is not a torch file, or it is damaged ({type(error).__name__})"
    return first_sentence(error)


def first_sentence(error: BaseException) -> str:
    """The first sentence of an error's message; in later ones torch explains how to load a file unsafely."""
    return first_line(error).partition(". ")[0]
