"""`bench models`."""

from harness.cli.models.show import register

__all__ = ["register"]
