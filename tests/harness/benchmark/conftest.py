"""What tests of the runner share: the tiny captioner that costs are counted with, and the conditions of a small run."""

from pathlib import Path

import pytest

from harness.benchmark.context import RunContext
from harness.utils.workspace import Workspace
from tests.harness.benchmark.small_runs import make_context
from tests.harness.measure.conftest import tiny, visual

__all__ = ["small", "tiny", "visual"]


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> RunContext:
    """The conditions of a run on a few scenes through a filterbank of 2 x 2 cells; nobody may change them."""
    return make_context(tmp_path_factory.mktemp("small"))


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """An empty one, not made yet."""
    return Workspace(tmp_path / "workspace")


@pytest.fixture(scope="module", autouse=True)
def _quick(quick_runs: None) -> None:
    """All modules of this folder have quick runs."""
