"""The fixtures of the harness's tests, for those of the public API."""

from tests.harness.cli.conftest import fill
from tests.harness.conftest import _computed, data, draw_scenes, make_run, pictures, quick_runs

__all__ = ["_computed", "data", "draw_scenes", "fill", "make_run", "pictures", "quick_runs"]
