"""The conditions of a small run, and a small budget."""

from pathlib import Path

from rich.console import Console

from harness.benchmark.rows import RequestedModel, resolve_models
from harness.config.tuning import Budget
from harness.utils.progress import Reporter
from harness.utils.workspace import Workspace
from tests.harness.benchmark.conftest import small

__all__ = ["BUDGET", "SILENT", "requested", "small"]

SILENT = Reporter(Console(quiet=True))
BUDGET = Budget(trials=3, updates=2, startup_trials=2)


def requested(*names: str) -> list[RequestedModel]:
    """Models as `--models` names them."""
    return resolve_models(names, Workspace(Path("nowhere")))
