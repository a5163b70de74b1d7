"""`bench flops`: what each architecture costs, before anything is trained."""

from harness.cli.flops.command import register

__all__ = ["register"]
