"""A store with scores of many images, for measurements of memory; rows are written as they are stored: it is quick."""

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, LargeBinary, insert, literal, update

from results import DatasetRecord, RunSpec, Store
from results.statistics.significance import SUMS
from results.store.schema import ImageInfluences, ImageScores, RunRow, Score

METRICS = ("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "METEOR", "ROUGE-L", "CIDEr-D", "SPICE")
FINGERPRINT = "f" * 16


def fill_scores(file: Path, *, models: int, seeds: int, images: int) -> None:
    """Store finished runs of one table with numbers of single images on all `METRICS`, and without captions."""
    generator = np.random.default_rng(0)
    ids = np.arange(images, dtype="<i8")
    difficulty = generator.normal(0, 0.1, images)
    specs = [
        RunSpec(
            f"model_{model}-s{seed}",
            f"model_{model}",
            "model",
            seed,
            "controlled",
            FINGERPRINT,
            {},
            {"data": "made_up", "nrefs": "5"},
        )
        for model in range(models)
        for seed in range(seeds)
    ]
    with Store(file) as store:
        store.record_dataset(DatasetRecord("made_up", FINGERPRINT, "/pictures", {"test": images}, ()))
        store.plan(specs)
        with store.writing() as connection:
            connection.execute(update(RunRow).values(status="finished", finished_at=datetime(2026, 1, 1, tzinfo=UTC)))
            for run_id in range(1, len(specs) + 1):
                for metric in METRICS:
                    mean = 0.5 + run_id // seeds / 1000 + generator.normal(0, 0.002)
                    scores = mean + difficulty + generator.normal(0, 0.05, images)
                    _insert(connection, run_id, metric, ids, scores)


def _insert(
    connection: Connection, run_id: int, metric: str, ids: NDArray[np.int64], scores: NDArray[np.float64]
) -> None:
    row = {"run_id": run_id, "split": "test", "metric": metric}
    connection.execute(insert(Score), {**row, "domain": "overall", "value": float(scores.mean()), "unit": ""})
    table = ImageInfluences if metric in SUMS else ImageScores
    statement = insert(table).values(scores=literal(ids.tobytes() + scores.tobytes(), LargeBinary))
    connection.execute(statement, row)
