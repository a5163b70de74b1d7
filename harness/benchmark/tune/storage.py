"""Where studies lie: Optuna's own tables, in a file of the workspace.

The file is beside the results database and not in it: Optuna keeps the version of its tables in `alembic_version`, the
name that the results database has for its own. It is in the workspace wherever the results are, since the checkpoints
and locks of trials are there too.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from harness.utils.errors import BenchError
from harness.utils.workspace import Workspace
from results.errors import install_extra

if TYPE_CHECKING:
    from optuna.storages import RDBStorage

BUSY_TIMEOUT_S = 60


def studies_file(workspace: Workspace) -> Path:
    """The studies of a workspace."""
    return workspace.root / "tuning.sqlite"


def require_optuna() -> None:
    """BenchError where Optuna is not installed."""
    if find_spec("optuna") is None:
        raise BenchError("tuning needs Optuna, which is not installed", install_extra("tune"))


def open_studies(workspace: Workspace) -> RDBStorage:
    """The studies of a workspace; tables are made where there are none, so hold `studies_lock`.

    Raises:
        BenchError: Optuna is not installed, or the file is not its.
    """
    require_optuna()
    import optuna
    from sqlalchemy.exc import SQLAlchemyError

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    file = studies_file(workspace)
    try:
        return optuna.storages.RDBStorage(
            f"sqlite:///{file.absolute()}", engine_kwargs={"connect_args": {"timeout": BUSY_TIMEOUT_S}}
        )
    except (SQLAlchemyError, RuntimeError) as error:
        reason = next(iter(str(error).splitlines()), "unknown error")
        raise BenchError(
            f"the studies in {file} cannot be opened: {reason}", "move the file away to start anew"
        ) from error


def studies_lock(workspace: Workspace) -> Path:
    """The lock that is held while a trial is taken, for a moment, by one process at a time."""
    return workspace.root / "tuning" / "lock"
