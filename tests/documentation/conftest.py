"""The fixtures of the harness's tests, for those of the documentation."""

from tests.harness.conftest import draw_scenes

__all__ = ["draw_scenes"]
