"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

PluginOption = Annotated[
    list[str] | None, typer.Option("--plugin", help="Python module or file that registers models.")
]
WorkspaceOption = Annotated[Path, typer.Option("--workspace", "-w", help="Folder that `bench run` writes to.")]
DatabaseOption = Annotated[
    str | None,
    typer.Option(
        "--db",
        envvar="BENCH_DB",
        help="Results database: a SQLite file or any SQLAlchemy URL. Without it, the workspace's bench.sqlite.",
    ),
]
