"""The reports' error for what a user can put right."""


class ReportError(Exception):
    """A report that cannot be written; `hint` says what to type next."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint
