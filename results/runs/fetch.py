"""What reports read of a store: a few SQL queries each, in one read transaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any, cast

from sqlalchemy import Connection, func, select

from results.errors import StoreError
from results.records import AttentionRecord, EpochRecord, Quantity
from results.runs.finished_runs import FinishedRun, code_of, finished_runs, one_dataset, quantity_columns
from results.runs.gallery import chunks, gallery
from results.runs.leaderboard import leaderboard
from results.runs.more_metrics import is_more
from results.runs.views import CostRow, DatasetInfo, Failure, RunDetail
from results.store.schema import AttentionMap, Cost, DatasetRow, Epoch, Image, RunRow, Score, SkippedImage
from results.store.store import Store

__all__ = [
    "attention_maps",
    "costs_table",
    "dataset_info",
    "datasets",
    "failures",
    "finished",
    "gallery",
    "leaderboard",
    "learning_curves",
    "run_detail",
    "run_details",
]


_UNREAD = {"dataset_id", "kind", "execution", "progress"}


def failures(store: Store) -> list[Failure]:
    """Every planned run without a result, in the order of planning: failed, skipped, running and planned ones."""
    query = select(
        RunRow.key,
        RunRow.model,
        RunRow.role,
        RunRow.seed,
        RunRow.track,
        DatasetRow.name.label("dataset"),
        RunRow.status,
        RunRow.reason,
        RunRow.error_class,
        RunRow.log_tail,
        RunRow.attempts,
        RunRow.started_at,
        RunRow.finished_at,
    )
    query = query.join(DatasetRow).where(RunRow.status != "finished").order_by(RunRow.id)
    with store.reading() as connection:
        return [Failure(**cast("Any", dict(row))) for row in connection.execute(query).mappings()]


def finished(
    store: Store, dataset: str | None = None, *, model: str | None = None, seed: int | None = None
) -> list[FinishedRun]:
    """Every finished run with its scores and costs, or those that are asked for, in the order of planning."""
    with store.reading() as connection:
        return finished_runs(connection, dataset, model=model, seed=seed)


def costs_table(store: Store) -> list[CostRow]:
    """What every finished run cost, in the order of planning."""
    return [
        CostRow(run.key, run.model, run.role, run.seed, run.track, run.dataset, run.costs, run.operators)
        for run in finished(store)
    ]


def learning_curves(store: Store, key: str) -> tuple[EpochRecord, ...]:
    """The epochs of a run, whatever its status, by stage and epoch; StoreError where it was never planned."""
    with store.reading() as connection:
        return tuple(record for _, record in _epochs(connection, [_run(connection, key)["id"]]))


def run_detail(store: Store, key: str) -> RunDetail:
    """Everything about one run, whatever its status; StoreError where it was never planned."""
    return run_details(store, [key])[key]


def run_details(store: Store, keys: Sequence[str]) -> dict[str, RunDetail]:
    """Everything about these runs, whatever their status, in this order; StoreError where one was never planned."""
    with store.reading() as connection:
        runs = [_run(connection, key) for key in dict.fromkeys(keys)]
        ids = [run["id"] for run in runs]
        finished = [run["id"] for run in runs if run["status"] == "finished"]
        scores: dict[int, dict[str, dict[str, dict[str, Quantity]]]] = {run_id: {} for run_id in ids}
        costs: dict[int, dict[str, Quantity]] = {run_id: {} for run_id in ids}
        epochs: dict[int, list[EpochRecord]] = {run_id: [] for run_id in ids}
        for some in chunks(finished):
            of_score = (Score.split, Score.domain, Score.metric, *quantity_columns(Score))
            scored = select(Score.run_id, *of_score).where(Score.run_id.in_(some)).order_by(Score.id)
            for run_id, split, domain, metric, *measured in connection.execute(scored):
                if not is_more(metric):
                    scores[run_id].setdefault(split, {}).setdefault(domain, {})[metric] = Quantity(*measured)
            spent = select(Cost.run_id, Cost.name, *quantity_columns(Cost)).where(Cost.run_id.in_(some))
            for run_id, name, *measured in connection.execute(spent.order_by(Cost.id)):
                costs[run_id][name] = Quantity(*measured)
        for some in chunks(ids):
            for run_id, record in _epochs(connection, some):
                epochs[run_id].append(record)
    found = {}
    for run in runs:
        run_id = run.pop("id")
        run["code"] = code_of(run["code"])
        found[run["key"]] = RunDetail(**run, epochs=tuple(epochs[run_id]), scores=scores[run_id], costs=costs[run_id])
    return found


def attention_maps(store: Store, key: str, split: str) -> dict[int, AttentionRecord]:
    """A run's attention weights for each word, by image id ascending; StoreError where the run was never planned."""
    with store.reading() as connection:
        run_id = _run(connection, key)["id"]
        query = select(AttentionMap).where(AttentionMap.run_id == run_id, AttentionMap.split == split)
        rows = connection.execute(query.order_by(AttentionMap.image_id)).mappings().all()
    return {
        row["image_id"]: AttentionRecord(
            image_id=row["image_id"],
            words=tuple(row["words"]),
            weights=tuple(map(tuple, row["weights"])),
            grid=None if row["grid_height"] is None else (row["grid_height"], row["grid_width"]),
            boxes=None if row["boxes"] is None else tuple(map(tuple, row["boxes"])),
        )
        for row in rows
    }


def datasets(store: Store) -> list[DatasetInfo]:
    """Every recorded data set, oldest first."""
    with store.reading() as connection:
        ids = connection.scalars(select(DatasetRow.id).order_by(DatasetRow.id)).all()
        return [_dataset_info(connection, dataset_id) for dataset_id in ids]


def dataset_info(store: Store, dataset: str) -> DatasetInfo:
    """The data set of this fingerprint or name; StoreError where there is none, or several share the name."""
    with store.reading() as connection:
        return _dataset_info(connection, one_dataset(connection, dataset))


def _dataset_info(connection: Connection, dataset_id: int) -> DatasetInfo:
    row = connection.execute(select(DatasetRow).where(DatasetRow.id == dataset_id)).mappings().one()
    counted = select(Image.split, func.count()).where(Image.dataset_id == dataset_id)
    skipped = select(SkippedImage.file, SkippedImage.reason).where(SkippedImage.dataset_id == dataset_id)
    return DatasetInfo(
        name=row["name"],
        fingerprint=row["fingerprint"],
        root=row["root"],
        split_sizes=row["split_sizes"],
        evaluated=dict(connection.execute(counted.group_by(Image.split).order_by(Image.split)).all()),
        skipped=dict(connection.execute(skipped.order_by(SkippedImage.file)).all()),
        recorded_at=row["recorded_at"],
    )


def _run(connection: Connection, key: str) -> dict[str, Any]:
    columns = [column for column in RunRow.__table__.columns if column.name not in _UNREAD]
    query = select(*columns, DatasetRow.name.label("dataset"), DatasetRow.fingerprint).join(DatasetRow)
    row = connection.execute(query.where(RunRow.key == key)).mappings().one_or_none()
    if row is None:
        raise StoreError(f"no run {key} in the results database")
    return cast("dict[str, Any]", dict(row))


def _epochs(connection: Connection, run_ids: Sequence[int]) -> Iterator[tuple[int, EpochRecord]]:
    """The epochs of these runs with the run's id, each run's by stage and epoch."""
    columns = [Epoch.__table__.columns[field.name] for field in fields(EpochRecord)]
    query = select(Epoch.run_id, *columns).where(Epoch.run_id.in_(run_ids))
    for run_id, *values in connection.execute(query.order_by(Epoch.run_id, Epoch.stage, Epoch.epoch)):
        yield run_id, EpochRecord(*values)
