"""What users are told at an end that was not planned: an error and what to type next, or how to continue."""

import os

from results.errors import without_passwords

INTERRUPTED = "interrupted; the same command continues where it stopped"


DEBUG_VARIABLE = "BENCH_DEBUG"


def wants_traceback() -> bool:
    """Whether `--debug` or the environment asks for tracebacks."""
    return os.environ.get(DEBUG_VARIABLE, "").lower() in {"1", "true", "yes", "on"}


def of_the_device(error: BaseException) -> bool:
    """Whether an error is that of an accelerator, or of its memory; torch derives them from others that it raises."""
    return type(error).__name__ in {"OutOfMemoryError", "AcceleratorError"} or "CUDA error" in str(error)


class ProcessLostError(BaseException):
    """Another process of the launch has ended. Not an `Exception`, since it is not the failure of one model."""


class BenchError(Exception):
    """An error that the user can fix; `hint` says what to type next, in tracebacks too. Passwords of URLs are stars."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(without_passwords(message))
        self.hint = hint and without_passwords(hint)
        if self.hint:
            self.add_note(self.hint)
