"""`bench db`."""

from harness.cli.db.merge import register

__all__ = ["register"]
