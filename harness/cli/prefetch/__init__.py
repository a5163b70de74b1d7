"""`bench prefetch`."""

from harness.cli.prefetch.spice import register

__all__ = ["register"]
