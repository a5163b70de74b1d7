"""What the shell completes of stored results: keys of runs, and models that have one.

A completion never fails and prints nothing besides: where results cannot be read, there is nothing to complete. Only
files are read, so that no shell waits for a server.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import typer

from harness.utils.workspace import DEFAULT, Workspace

_CAPTIONING: Final = frozenset({"trained", "pretrained", "hub", "ensemble", "stored"})
"""Kinds of runs whose models caption images."""


def complete_runs(context: typer.Context, incomplete: str) -> list[str]:
    """Models with a finished run, and then the keys of these runs."""
    return _models_and_keys(_runs(context, "finished"), incomplete)


def complete_captioning_runs(context: typer.Context, incomplete: str) -> list[str]:
    """The same of models that caption images, which reference rows and files of captions do not."""
    return _models_and_keys([run for run in _runs(context, "finished") if run.kind in _CAPTIONING], incomplete)


def complete_keys(context: typer.Context, incomplete: str) -> list[str]:
    return [run.key for run in _runs(context, "finished") if run.key.startswith(incomplete)]


def complete_planned_keys(context: typer.Context, incomplete: str) -> list[str]:
    return [run.key for run in _runs(context, "planned") if run.key.startswith(incomplete)]


class _StoredRun(NamedTuple):
    key: str
    model: str
    kind: str


def _models_and_keys(runs: list[_StoredRun], incomplete: str) -> list[str]:
    names = [*dict.fromkeys(run.model for run in runs), *(run.key for run in runs)]
    return [name for name in names if name.startswith(incomplete)]


def _runs(context: typer.Context, status: str) -> list[_StoredRun]:
    """The runs of the command's `--workspace` or `--db`, the newest first."""
    with suppress(Exception):
        database = Workspace(Path(context.params.get("workspace") or DEFAULT), context.params.get("db")).database
        if Path(database).is_file():
            return _read(database, status)
    return []


def _read(database: str, status: str) -> list[_StoredRun]:
    from sqlalchemy import select

    from results.store.schema import RunRow
    from results.store.store import Store

    query = select(RunRow.key, RunRow.model, RunRow.kind).where(RunRow.status == status).order_by(RunRow.id.desc())
    with Store(database, read_only=True) as store, store.reading() as connection:
        return [_StoredRun(*row) for row in connection.execute(query)]
