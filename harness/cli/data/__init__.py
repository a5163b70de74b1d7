"""`bench data`."""

from harness.cli.data.verify import register

__all__ = ["register"]
