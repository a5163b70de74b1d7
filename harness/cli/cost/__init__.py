"""`bench cost`."""

from harness.cli.cost.measure import register

__all__ = ["register"]
