"""The reports' error for what a user can put right."""

from results.errors import StoreError


class ReportError(StoreError):
    """A report that cannot be written."""
