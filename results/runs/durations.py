"""How long finished runs took, for plans of further ones."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

from sqlalchemy import select

from results.store.schema import DatasetRow, RunRow
from results.store.store import Store


@dataclass(frozen=True, slots=True)
class Duration:
    """Mean wall-clock seconds of a model's runs, from their start to their last row, and how many these are."""

    seconds: float
    runs: int


def run_durations(store: Store, dataset: str, conditions: dict[str, str]) -> dict[str, Duration]:
    """Of trained models' runs that finished at the first attempt on a data set of this name, by model.

    Args:
        conditions: fields of the signature that the runs have to share.

    Raises:
        StoreError: the store cannot be read.
    """
    with store.reading() as connection:
        query = (
            select(RunRow.model, RunRow.signature, RunRow.started_at, RunRow.finished_at)
            .join(DatasetRow, RunRow.dataset_id == DatasetRow.id)
            .where(RunRow.status == "finished", RunRow.attempts == 1, DatasetRow.name == dataset)
        )
        rows = connection.execute(query).all()
    found: dict[str, list[float]] = {}
    for model, signature, started, finished in rows:
        if started and finished and conditions.items() <= signature.items():
            found.setdefault(model, []).append((finished - started).total_seconds())
    return {model: Duration(fmean(seconds), len(seconds)) for model, seconds in found.items()}
