"""`bench export`."""

from harness.cli.export.submission import register

__all__ = ["register"]
