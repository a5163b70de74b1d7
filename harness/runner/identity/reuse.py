"""Which finished runs stand for planned ones: those of the same code, or of other code where that is accepted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from harness.config.preset import NOT_IN_KEY
from harness.runner.identity.run_key import changed_files, without
from harness.utils.hashing import canonical_json
from results.db.store import Store
from results.queries.finished_runs import FinishedCell, finished_cells
from results.records import CODE_FIELDS, Cell

_FILES_NAMED = 3
_RUNS_NAMED = 4
_SINCE_0_3_0 = CODE_FIELDS | {"trainlen"}
_UNTIL_0_2_0 = {"latency_seconds": "how long captions were timed"}


def settle(cells: Sequence[Cell], store: Store, *, accept: bool, rerun: bool) -> tuple[list[Cell], list[str]]:
    """The runs to work on, and what to say of those that other code made.

    Args:
        cells: as planned.
        accept: whether a finished run of the same settings stands for a planned one though other code made it.
        rerun: whether everything is trained anew anyway.
    """
    with store.reading() as connection:
        finished = sorted(finished_cells(connection), key=lambda run: run.finished_at)
    by_key = {run.key: run for run in finished}
    settled: list[Cell] = []
    said: dict[str, list[str]] = {}
    for cell in cells:
        own = by_key.get(cell.key)
        twin = own or _nearest([run for run in finished if _same_settings(run, cell)], cell)
        what = None if twin is None or rerun else _difference(twin, cell)
        if twin is not None and what is not None:
            if own is not None:
                text = f"re-used although {what}: the results revision is the same"
            elif accept:
                text = f"re-used, made by other code: {what}"
                cell = _as_planned(twin, cell)
            else:
                text = f"new, because {what}; the older run stays, --accept-code-changes re-uses it"
            said.setdefault(text, []).append(cell.model + (f" seed {cell.seed}" if cell.seed else ""))
        settled.append(cell)
    return settled, [f"{_listed(names, _RUNS_NAMED)}: {text}" for text, names in said.items()]


def _nearest(runs: Sequence[FinishedCell], cell: Cell) -> FinishedCell | None:
    """The last run of the same sources of the model, or else the last."""
    assert cell.code is not None
    same = [run for run in runs if run.code is not None and run.code.model == cell.code.model]
    chosen = same or runs
    return chosen[-1] if chosen else None


def _as_planned(run: FinishedCell, cell: Cell) -> Cell:
    return replace(
        cell,
        key=run.key,
        config=run.config,
        signature=run.signature,
        code=run.code,
        code_version=run.code_version,
    )


def _difference(run: FinishedCell, cell: Cell) -> str | None:
    """In what the code of a finished run differs from that which would make it now; None where it does not."""
    assert cell.code is not None
    if run.code is None:
        return f"captionbench {run.code_version} made the finished run, which did not record its code"
    if files := changed_files(run.code, cell.code):
        return f"{_listed(files, _FILES_NAMED)} changed since"
    if run.code.revision != cell.code.revision:
        return f"the finished run is of results revision {run.code.revision}, not {cell.code.revision}"
    return None


def _same_settings(run: FinishedCell, cell: Cell) -> bool:
    """Whether the two differ in nothing but code."""
    if (run.model, run.role, run.seed, run.fingerprint) != (cell.model, cell.role, cell.seed, cell.dataset):
        return False
    if "settings" in run.config:
        return bool(run.config["settings"] == cell.config["settings"])
    # 0.2.0 had no digest of the settings: what it stored of them must be the same.
    return (
        _conditions(run.signature) == _conditions(cell.signature)
        and canonical_json(run.config.get("arguments")) == canonical_json(cell.config["arguments"])
        and _preset(run.config) == _preset(cell.config)
    )


def _conditions(signature: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in signature.items() if name not in _SINCE_0_3_0}


def _preset(config: Mapping[str, Any]) -> dict[str, Any]:
    return without(config.get("preset") or {}, {**NOT_IN_KEY, **_UNTIL_0_2_0})


def _listed(names: Sequence[str], most: int) -> str:
    """At most so many names, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
