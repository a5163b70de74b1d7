"""What a finished run gets later: metrics, influences and costs that it lacks, from its stored captions."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from statistics import fmean
from typing import Any

from sqlalchemy import Connection, delete, func, select, update

from results.errors import StoreError
from results.records import Quantity, SplitResult
from results.store.rows import (
    cost_columns,
    held_out_columns,
    insert_all,
    json_object,
    packed_columns,
    score_columns,
)
from results.store.schema import Caption, Cost, HeldOutScore, ImageInfluences, ImageScores, RunRow, Score
from results.store.store import Store

_SAME = 1e-6  # relative: two machines add in different orders


def stored_captions(store: Store, key: str) -> dict[str, dict[int, str]]:
    """A run's captions by split and image id; empty where it has not finished."""
    with store.reading() as connection:
        run_id = connection.scalar(select(RunRow.id).where(RunRow.key == key))
        if run_id is None:
            raise StoreError(f"no run {key} in the results database")
        query = select(Caption.split, Caption.image_id, Caption.caption).where(Caption.run_id == run_id)
        found: dict[str, dict[int, str]] = {}
        for split, image_id, caption in connection.execute(query.order_by(Caption.split, Caption.image_id)):
            found.setdefault(split, {})[image_id] = caption
    return found


def missing_metrics(store: Store, key: str, metrics: Collection[str]) -> dict[str, set[str]]:
    """Which of `metrics` a finished run has no value of, by split; splits that have all of them are left out."""
    with store.reading() as connection:
        there = _scored(connection, key)
        found = {split: {each for each in metrics if (split, each) not in there} for split in _splits(connection, key)}
    return {split: missing for split, missing in found.items() if missing}


def missing_influences(store: Store, key: str, metrics: Collection[str]) -> dict[str, set[str]]:
    """Which of `metrics` a finished run has a score of but no influences, by split; a single image has none."""
    influenced = select(ImageInfluences.split, ImageInfluences.metric).join(RunRow).where(RunRow.key == key)
    with store.reading() as connection:
        lacking = _scored(connection, key) - set(connection.execute(influenced))
        splits = [split for split, images in _splits(connection, key).items() if images > 1]
    found = {split: {each for each in metrics if (split, each) in lacking} for split in splits}
    return {split: missing for split, missing in found.items() if missing}


def _splits(connection: Connection, key: str) -> dict[str, int]:
    """How many captions each split of a finished run has."""
    query = select(Caption.split, func.count()).join(RunRow).where(RunRow.key == key, RunRow.status == "finished")
    return dict(connection.execute(query.group_by(Caption.split).order_by(Caption.split)).all())


def _scored(connection: Connection, key: str) -> set[tuple[str, str]]:
    """Splits and metrics that a run has a value of."""
    query = select(Score.split, Score.metric).join(RunRow).where(RunRow.key == key)
    found = connection.execute(query.where(Score.domain == "overall", Score.value.is_not(None)))
    return {(split, metric) for split, metric in found}


def add_scores(store: Store, key: str, results: Sequence[SplitResult]) -> None:
    """Replace the finished run's scores of the metrics in `results`; its others stay as they are."""
    with store.writing() as connection:
        run_id = _finished(connection, key)
        for result in results:
            for table, rows in (
                (Score, score_columns(key, result)),
                (HeldOutScore, held_out_columns(key, result)),
                (ImageScores, packed_columns(key, result, result.per_image, "scores")),
                (ImageInfluences, packed_columns(key, result, result.influences, "influences")),
            ):
                metrics = {row["metric"] for row in rows}
                old = (table.run_id == run_id, table.split == result.split, table.metric.in_(metrics))
                connection.execute(delete(table).where(*old))
                insert_all(connection, table, rows, run_id=run_id)


def add_influences(store: Store, key: str, split: str, influences: Mapping[str, Mapping[int, float]]) -> set[str]:
    """Store the finished run's influences by metric and image; gives the metrics that were not stored.

    These have another mean than the stored score: another evaluator computed that.
    """
    refused = set()
    with store.writing() as connection:
        run_id = _finished(connection, key)
        there = select(Score.metric, Score.value).filter_by(run_id=run_id, split=split, domain="overall")
        scores = dict(connection.execute(there).all())
        for metric, values in influences.items():
            score = scores.get(metric)
            if score is None or not math.isclose(fmean(values.values()), score, rel_tol=_SAME, abs_tol=_SAME**2):
                refused.add(metric)
                continue
            row = {"run_id": run_id, "split": split, "metric": metric}
            connection.execute(delete(ImageInfluences).filter_by(**row))
            insert_all(connection, ImageInfluences, [{**row, "scores": dict(values)}])
    return refused


def _finished(connection: Connection, key: str) -> int:
    run_id = connection.scalar(select(RunRow.id).where(RunRow.key == key, RunRow.status == "finished"))
    if run_id is None:
        raise StoreError(f"run {key} has not finished: there is nothing to add to")
    return run_id


def runs_without_cost(store: Store, reason: str) -> set[str]:
    query = select(RunRow.key).join(Cost).where(RunRow.status == "finished", Cost.reason == reason)
    with store.reading() as connection:
        return set(connection.scalars(query.distinct()))


def add_costs(store: Store, key: str, costs: Mapping[str, Quantity], environment: Mapping[str, Any]) -> None:
    """Replace the finished run's `costs` of these names, and add `environment` to its own."""
    columns = cost_columns(key, costs)
    added = json_object(environment, f"run {key}: environment")
    with store.writing() as connection:
        run_id = _finished(connection, key)
        connection.execute(delete(Cost).where(Cost.run_id == run_id, Cost.name.in_(costs)))
        insert_all(connection, Cost, columns, run_id=run_id)
        known = connection.scalars(select(RunRow.environment).where(RunRow.id == run_id)).one()
        connection.execute(update(RunRow).where(RunRow.id == run_id).values(environment={**known, **added}))
