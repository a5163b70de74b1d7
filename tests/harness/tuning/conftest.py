"""The conditions of a small run."""

from tests.harness.runner.conftest import small

__all__ = ["small"]
