"""What reports read of a store: a few SQL queries each, in one read transaction."""

from __future__ import annotations

from typing import Any, cast

from sqlalchemy import Connection, func, select

from results.db.intact import intact_datasets, intact_images, intact_runs, intact_skipped, refuse_damaged
from results.db.schema import AttentionMap, Cost, DatasetRow, Epoch, Image, RunRow, Score, SkippedImage
from results.db.store import Store
from results.errors import StoreError
from results.queries.finished_runs import code_of, finished_runs, one_dataset, quantity_of
from results.queries.gallery import gallery
from results.queries.leaderboard import leaderboard
from results.queries.views import CostRow, DatasetInfo, Failure, RunDetail
from results.records import AttentionRecord, EpochRecord, Quantity

__all__ = [
    "attention_maps",
    "costs_table",
    "dataset_info",
    "datasets",
    "failures",
    "gallery",
    "leaderboard",
    "learning_curves",
    "run_detail",
]


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
        query = query.where(intact_runs(connection))
        return [Failure(**cast("Any", dict(row))) for row in connection.execute(query).mappings()]


def costs_table(store: Store) -> list[CostRow]:
    """What every finished run cost, in the order of planning."""
    with store.reading() as connection:
        runs = finished_runs(connection)
    return [
        CostRow(run.key, run.model, run.role, run.seed, run.track, run.dataset, run.costs, run.operators)
        for run in runs
    ]


def learning_curves(store: Store, key: str) -> tuple[EpochRecord, ...]:
    """The epochs of a run, whatever its status, by stage and epoch; StoreError where it was never planned."""
    with store.reading() as connection:
        return _epochs(connection, _run(connection, key)["id"])


def run_detail(store: Store, key: str) -> RunDetail:
    """Everything about one run, whatever its status; StoreError where it was never planned."""
    with store.reading() as connection:
        run = _run(connection, key)
        run_id = run.pop("id")
        finished = run["status"] == "finished"
        scores: dict[str, dict[str, dict[str, Quantity]]] = {}
        costs: dict[str, Quantity] = {}
        if finished:
            for row in connection.execute(select(Score).where(Score.cell_id == run_id).order_by(Score.id)).mappings():
                metrics = scores.setdefault(row["split"], {}).setdefault(row["domain"], {})
                metrics[row["metric"]] = quantity_of(row)
            for row in connection.execute(select(Cost).where(Cost.cell_id == run_id).order_by(Cost.id)).mappings():
                costs[row["name"]] = quantity_of(row)
        run["code"] = code_of(run["code"])
        return RunDetail(**run, epochs=_epochs(connection, run_id), scores=scores, costs=costs)


def attention_maps(store: Store, key: str, split: str) -> dict[int, AttentionRecord]:
    """A run's attention weights for each word, by image id ascending; StoreError where the run was never planned."""
    with store.reading() as connection:
        run_id = _run(connection, key)["id"]
        query = select(AttentionMap).where(AttentionMap.cell_id == run_id, AttentionMap.split == split)
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
        ids = connection.scalars(select(DatasetRow.id).where(intact_datasets(connection)).order_by(DatasetRow.id)).all()
        return [_dataset_info(connection, dataset_id) for dataset_id in ids]


def dataset_info(store: Store, dataset: str) -> DatasetInfo:
    """The data set of this fingerprint or name; StoreError where there is none, or several share the name."""
    with store.reading() as connection:
        return _dataset_info(connection, one_dataset(connection, dataset))


def _dataset_info(connection: Connection, dataset_id: int) -> DatasetInfo:
    row = connection.execute(select(DatasetRow).where(DatasetRow.id == dataset_id)).mappings().one()
    counted = select(Image.split, func.count()).where(Image.dataset_id == dataset_id, intact_images(connection))
    skipped = select(SkippedImage.file, SkippedImage.reason).where(SkippedImage.dataset_id == dataset_id)
    skipped = skipped.where(intact_skipped(connection))
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
    refuse_damaged(connection, key)
    columns = [column for column in RunRow.__table__.columns if column.name != "dataset_id"]
    query = select(*columns, DatasetRow.name.label("dataset"), DatasetRow.fingerprint).join(DatasetRow)
    row = connection.execute(query.where(RunRow.key == key)).mappings().one_or_none()
    if row is None:
        raise StoreError(f"no run {key} in the results database")
    return cast("dict[str, Any]", dict(row))


def _epochs(connection: Connection, run_id: int) -> tuple[EpochRecord, ...]:
    rows = connection.execute(select(Epoch).where(Epoch.cell_id == run_id).order_by(Epoch.stage, Epoch.epoch))
    return tuple(
        EpochRecord(**{name: value for name, value in row.items() if name != "cell_id"}) for row in rows.mappings()
    )
