"""The fixtures of the harness's tests, for those of the documentation."""

from tests.harness.conftest import _computed, draw_scenes, quick_runs

__all__ = ["_computed", "draw_scenes", "quick_runs"]
