"""Opening the results that a command shows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.utils.errors import BenchError
from harness.utils.workspace import Workspace

if TYPE_CHECKING:
    from results.db.store import Store


def open_results(workspace: Path, db: str | None) -> Store:
    """The results of a workspace or of `--db`, for reading alone.

    Raises:
        BenchError: the workspace has none yet.
        StoreError: the database cannot be read.
    """
    from results.db.store import Store

    place = Workspace(workspace, db)
    if db is None and not Path(place.database).is_file():
        raise BenchError(
            f"no results in the workspace {workspace}: {place.database} does not exist",
            "make some with: bench run --models all; or name a workspace with --workspace DIR",
        )
    return Store(place.database, read_only=True)
