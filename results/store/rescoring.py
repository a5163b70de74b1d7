"""What a finished run gets later: metrics and costs that it lacks, from its stored captions."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, delete, select, update

from results.errors import StoreError
from results.records import Quantity, SplitResult
from results.store.rows import cost_columns, held_out_columns, insert_all, json_object, score_rows
from results.store.schema import Caption, Cost, DatasetRow, HeldOutScore, RunRow, Score
from results.store.store import Store


def stored_captions(store: Store, key: str) -> dict[str, dict[int, str]]:
    """A run's captions by split and image id; empty where it has not finished."""
    with store.reading() as connection:
        run_id = connection.scalar(select(RunRow.id).where(RunRow.key == key))
        if run_id is None:
            raise StoreError(f"no run {key} in the results database")
        query = select(Caption.split, Caption.image_id, Caption.caption).where(Caption.run_id == run_id)
        captions: dict[str, dict[int, str]] = {}
        for split, image_id, caption in connection.execute(query.order_by(Caption.split, Caption.image_id)):
            captions.setdefault(split, {})[image_id] = caption
    return captions


def missing_metrics(store: Store, key: str, metrics: Collection[str]) -> dict[str, set[str]]:
    """Which of `metrics` a finished run has no value of, by split; splits that have all of them are left out."""
    with store.reading() as connection:
        scored = select(Score.split, Score.metric).join(RunRow).where(RunRow.key == key)
        measured = set(connection.execute(scored.where(Score.domain == "overall", Score.value.is_not(None))))
        query = select(Caption.split).distinct().join(RunRow).where(RunRow.key == key, RunRow.status == "finished")
        splits = connection.scalars(query.order_by(Caption.split)).all()
    missing_by_split = {split: {metric for metric in metrics if (split, metric) not in measured} for split in splits}
    return {split: missing for split, missing in missing_by_split.items() if missing}


def has_run_of(store: Store, model: str, dataset: str) -> bool:
    """Whether runs of a model on a data set, given by its fingerprint, are stored or planned."""
    query = select(RunRow.id).join(DatasetRow).where(RunRow.model == model, DatasetRow.fingerprint == dataset)
    with store.reading() as connection:
        return connection.scalar(query.limit(1)) is not None


def splits_without_held_out(store: Store, key: str) -> set[str]:
    """The splits of a finished run's captions that were never scored with each reference left out."""
    captioned = select(Caption.split).join(RunRow).where(RunRow.key == key, RunRow.status == "finished")
    scored = select(HeldOutScore.split).join(RunRow).where(RunRow.key == key)
    with store.reading() as connection:
        return set(connection.scalars(captioned.distinct())) - set(connection.scalars(scored.distinct()))


def add_scores(store: Store, key: str, results: Sequence[SplitResult]) -> None:
    """Replace the finished run's scores of the metrics in `results`; its others stay as they are."""
    with store.writing() as connection:
        run_id = _finished(connection, key)
        for result in results:
            for table, rows in score_rows(key, result).items():
                metrics = {row["metric"] for row in rows}
                old = (table.run_id == run_id, table.split == result.split, table.metric.in_(metrics))
                connection.execute(delete(table).where(*old))
                insert_all(connection, table, rows, run_id=run_id)


def add_held_out_scores(store: Store, key: str, scores: Mapping[str, Mapping[str, Quantity]]) -> None:
    """Add the finished run's scores with each reference left out in turn, by split and metric, which it lacks."""
    with store.writing() as connection:
        run_id = _finished(connection, key)
        for split, held_out in scores.items():
            insert_all(connection, HeldOutScore, held_out_columns(key, split, held_out), run_id=run_id)


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
        environment_before = connection.scalars(select(RunRow.environment).where(RunRow.id == run_id)).one()
        connection.execute(
            update(RunRow).where(RunRow.id == run_id).values(environment={**environment_before, **added})
        )
