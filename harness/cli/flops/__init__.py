"""`bench flops`."""

from harness.cli.flops.command import register

__all__ = ["register"]
