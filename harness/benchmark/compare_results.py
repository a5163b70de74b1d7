"""Compare stored results by the names that people type: two models, two runs, two workspaces or two databases."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from harness.utils.errors import BenchError
from harness.utils.workspace import Workspace
from results.comparison.comparison import Comparison, compare_models, compare_stores
from results.runs.reading import StoredRuns, evaluated_images, run_keys, stored_runs
from results.store.store import Store


def compare_results(
    before: str,
    after: str,
    workspace: Workspace,
    captions: int,
    metrics: Collection[str] | None = None,
    budget: int | None = None,
) -> Comparison:
    """Compare two models or runs of `workspace`, or two workspaces or databases, whose models are paired.

    Args:
        captions: how many captions to give, of those that changed most.
        metrics: the only ones to test, so that the correction is for fewer tests; None tests all.
        budget: the only budget of `bench run --budgets` whose runs are compared, of two models.

    Raises:
        BenchError: one is a workspace and the other is not, a workspace has no results, or nothing can be paired.
        StoreError: there is no such model or run, or it has not finished.
    """
    names = before, after
    are_stores = ["://" in name or Path(name).exists() for name in names]
    if not all(are_stores):  # a folder without results may have the name of a model
        are_stores = ["://" in name or Path(name).is_file() or Path(name, "bench.sqlite").exists() for name in names]
    if are_stores[0] != are_stores[1]:
        key, store = (after, before) if are_stores[0] else (before, after)
        raise BenchError(
            f"{store} is a workspace or database, but {key} is not",
            "give two of them, or two models, or the keys of two runs, which the workspace's folder runs has",
        )
    if are_stores[0] and budget is not None:
        raise BenchError("--budget is for two models of one workspace", "leave it out: runs of one budget are paired")
    if are_stores[0]:
        return _compare_stores(before, after, captions, metrics)
    with workspace.open_results() as results:
        runs_before, runs_after = (_stored(results, name, budget) for name in names)
        return compare_models(runs_before, runs_after, evaluated_images(results), captions, metrics)


def _stored(store: Store, name: str, budget: int | None) -> StoredRuns:
    """The runs of a model, or one by its key, of one budget if it is named."""
    stored = stored_runs(store, run_keys(store, name))
    if budget is None:
        return stored
    runs = [run for run in stored.runs if run.budget == budget]
    if not runs:
        budgets = ", ".join(str(budget) for budget in sorted({run.budget for run in stored.runs}))
        raise BenchError(f"--budget {budget}: no run of {name} has it", f"its runs have: {budgets}")
    return replace(stored, runs=runs)


def _compare_stores(before: str, after: str, captions: int, metrics: Collection[str] | None) -> Comparison:
    with _open(before) as store_before, _open(after) as store_after:
        runs_before = stored_runs(store_before)
        runs_after = stored_runs(store_after)
        for name, stored in ((before, runs_before), (after, runs_after)):
            if not stored.runs:
                raise BenchError(f"no run has finished in {name}", "make some with: bench run --models all")
        comparison = compare_stores(runs_before, runs_after, evaluated_images(store_before), captions, metrics)
    if not comparison.pairs:
        raise BenchError(
            f"no run of {before} can be paired with one of {after}: they share no model, or several of its runs differ",
            "give the checkpoints' folders one name; or name two models or runs of one database, into which "
            "bench db merge brings another's runs",
        )
    return comparison


def _open(name: str) -> Store:
    workspace = Workspace(Path(name)) if Path(name).is_dir() else Workspace(Path(), db=name)
    return workspace.open_results()
