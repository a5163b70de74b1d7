"""Runs of the benchmark that are killed at a moment, and what is stored of them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from results import Store
from results.records import EpochRecord
from results.runs.gallery import gallery
from results.runs.leaderboard import Row, leaderboard
from results.runs.reading import finished, one_run
from tests.harness.conftest import groups_in

PLUGINS = Path(__file__).parents[1] / "plugins"


class Killed(KeyboardInterrupt):
    """Stands for the end of the process, which no model's code brings about."""


def curves(records: list[EpochRecord]) -> list[tuple[Any, ...]]:
    """What two trainings must have in common."""
    return [(row.stage, row.stage_name, row.epoch, row.step, row.train_loss, row.val_cider) for row in records]


def killed_at(moment: str) -> tuple[list[object], dict[str, str]]:
    """The words and the environment of a `bench run` that kills itself at this moment."""
    return ["--plugin", PLUGINS / "killer.py"], {"BENCH_TEST_KILL_AT": moment}


def rows(workspace: Path) -> dict[str, Row]:
    """The test split's rows by model, references included."""
    [group] = [group for group in groups_in(workspace) if group.split == "test"]
    return {row.model: row for row in (*group.rows, *group.references)}


def scores_and_captions(workspace: Path) -> tuple[dict[str, dict[str, float | None]], list[object]]:
    """All that must not depend on kills; keys do, on the plug-in that kills."""
    with Store(workspace / "bench.sqlite", read_only=True) as store:
        [fingerprint] = {group.fingerprint for group in leaderboard(store)}
        pictures = [
            replace(item, captions=tuple(replace(caption, key="") for caption in item.captions))
            for split in ("test", "nocaps")
            for item in gallery(store, fingerprint, split, finished(store))
        ]
        everything = [
            {name: spread.mean for name, spread in row.scores.items()}
            for group in leaderboard(store)
            for row in (*group.rows, *group.references)
        ]
        curves = [
            (epoch.train_loss, epoch.val_cider) for row in rows(workspace).values() for key in row.keys
            for epoch in one_run(store, key).epochs
        ]  # fmt: skip
        return {str(number): scores for number, scores in enumerate(everything)}, [pictures, curves]


def learned(workspace: Path, key: str) -> tuple[Any, ...]:
    """What must not depend on where a finished run began: key, epochs, captions, scores, and the steps it took."""
    with Store(workspace / "bench.sqlite", read_only=True) as store, store.reading() as connection:
        run = one_run(store, key)
        epochs = [
            (epoch.stage, epoch.epoch, epoch.step, epoch.learning_rate, epoch.train_loss, epoch.val_cider)
            for epoch in run.epochs
        ]
        captions = connection.exec_driver_sql(
            "SELECT image_id, caption FROM captions JOIN runs ON id = run_id WHERE key = ? ORDER BY 1", (key,)
        ).all()
    assert run.status == "finished"
    return key, epochs, captions, run.scores, run.costs["train_steps"].value
