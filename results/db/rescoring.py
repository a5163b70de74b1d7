"""Scores that a finished run still lacks: which, the captions to compute them from, and storing them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import delete, select

from results.db.rows import held_out_columns, image_score_columns, insert_all, score_columns
from results.db.schema import Caption, HeldOutScore, ImageScores, RunRow, Score
from results.db.store import Store
from results.errors import StoreError
from results.records import SplitResult


def stored_captions(store: Store, key: str) -> dict[str, dict[int, str]]:
    """A run's captions by split and image id; empty where it has not finished.

    Raises:
        StoreError: the run was never planned.
    """
    with store.reading() as connection:
        run_id = connection.scalar(select(RunRow.id).where(RunRow.key == key))
        if run_id is None:
            raise StoreError(f"no run {key} in the results database")
        query = select(Caption.split, Caption.image_id, Caption.caption).where(Caption.cell_id == run_id)
        found: dict[str, dict[int, str]] = {}
        for split, image_id, caption in connection.execute(query.order_by(Caption.split, Caption.image_id)):
            found.setdefault(split, {})[image_id] = caption
    return found


def missing_metrics(store: Store, key: str, metrics: Collection[str]) -> dict[str, set[str]]:
    """Which of `metrics` a finished run has no value of, by split; splits that have all of them are left out."""
    captions = select(Caption.split).join(RunRow).where(RunRow.key == key, RunRow.status == "finished").distinct()
    scored = select(Score.split, Score.metric).join(RunRow)
    scored = scored.where(RunRow.key == key, Score.domain == "overall", Score.value.is_not(None))
    with store.reading() as connection:
        there = {(split, metric) for split, metric in connection.execute(scored)}
        missing = {
            split: {metric for metric in metrics if (split, metric) not in there}
            for split in connection.scalars(captions.order_by(Caption.split))
        }
    return {split: found for split, found in missing.items() if found}


def add_scores(store: Store, key: str, results: Sequence[SplitResult]) -> None:
    """Replace the finished run's scores of the metrics in `results`; its others stay as they are."""
    with store.writing() as connection:
        run_id = connection.scalar(select(RunRow.id).where(RunRow.key == key, RunRow.status == "finished"))
        if run_id is None:
            raise StoreError(f"run {key} has not finished: there is nothing to add scores to")
        for result in results:
            for table, rows in (
                (Score, score_columns(key, result)),
                (HeldOutScore, held_out_columns(key, result)),
                (ImageScores, image_score_columns(key, result)),
            ):
                metrics = {row["metric"] for row in rows}
                old = (table.cell_id == run_id, table.split == result.split, table.metric.in_(metrics))
                connection.execute(delete(table).where(*old))
                insert_all(connection, table, rows, cell_id=run_id)
