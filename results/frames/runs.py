"""Data frames whose rows are of runs: scores, scores of single images, captions, costs and epochs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

import numpy as np
import pandas as pd
from sqlalchemy import Connection, Select, and_, select

from results.errors import StoreError
from results.runs.facts import is_fact
from results.runs.more_metrics import MORE_METRICS, base_name, is_more
from results.runs.reading import code_of
from results.store.schema import Base, Caption, Cost, DatasetRow, Epoch, HeldOutScore, Image, ImageScores, RunRow, Score

Rows = Sequence[Sequence[Any]]

IDENTITY: Final = {"run": "category", "model": "category", "role": "category", "seed": "int64", "dataset": "category"}
CONDITIONS: Final = dict.fromkeys(("track", "fingerprint", "signature", "code_model", "code_revision"), "category")

# How names of costs spell units out; a unit that a name does not spell out is appended as it is.
_SPELT_OUT = {
    "s": "seconds",
    "h": "hours",
    "images/s": "images_per_second",
    "GMAC": "gmac",
    "GMAC/s": "gmac_per_second",
}


def scores(connection: Connection, split: str | None, metric: str | None) -> pd.DataFrame:
    held_out = and_(
        HeldOutScore.run_id == Score.run_id,
        HeldOutScore.split == Score.split,
        HeldOutScore.metric == Score.metric,
        Score.domain == "overall",
    )
    columns = (Score.split, Score.domain, Score.metric, Score.value, Score.low, Score.high, Score.reason)
    query = select(Score.run_id, *columns, HeldOutScore.value, HeldOutScore.reason)
    query = query.join(RunRow, RunRow.id == Score.run_id).outerjoin(HeldOutScore, held_out)
    rows = _read(connection, query.order_by(Score.run_id, Score.id), Score, split=split, metric=metric)
    rows = [row for row in rows if not is_more(row[3])]
    dtypes = {
        **dict.fromkeys(("split", "domain", "metric"), "category"),
        **dict.fromkeys(("score_percent", "low_percent", "high_percent"), "float64"),
        "reason": "string",
        "held_out_percent": "float64",
        "held_out_reason": "string",
    }
    found = _frame(connection, rows, dtypes)
    found[["score_percent", "low_percent", "high_percent", "held_out_percent"]] *= 100
    return found


def more_metrics(connection: Connection, split: str | None, metric: str | None) -> pd.DataFrame:
    columns = (Score.split, Score.metric, Score.value, Score.low, Score.high, Score.reason)
    query = select(Score.run_id, *columns).join(RunRow, RunRow.id == Score.run_id)
    rows = _read(connection, query.order_by(Score.run_id, Score.id), Score, split=split, metric=metric)
    found = [(*row, MORE_METRICS[base_name(row[2])].better) for row in rows if is_more(row[2])]
    dtypes = {
        **dict.fromkeys(("split", "metric"), "category"),
        **dict.fromkeys(("value", "low", "high"), "float64"),
        "reason": "string",
        "better": "category",
    }
    return _frame(connection, found, dtypes)


def image_scores(connection: Connection, split: str | None, metric: str | None) -> pd.DataFrame:
    query = select(ImageScores.run_id, ImageScores.split, ImageScores.metric, RunRow.dataset_id, ImageScores.scores)
    query = query.join(RunRow).order_by(ImageScores.run_id, ImageScores.split, ImageScores.metric)
    rows = _read(connection, query, ImageScores, split=split, metric=metric)
    rows = [row for row in rows if not is_more(row[2]) and not is_fact(row[2])]
    domains: dict[int, dict[int, str | None]] = {}
    of_images = select(Image.dataset_id, Image.image_id, Image.domain)
    for dataset, image, domain in connection.execute(of_images):
        domains.setdefault(dataset, {})[image] = domain

    # A stored row holds all images of a run, split and metric: what they share is repeated for each.
    found = _frame(connection, [row[:3] for row in rows], dict.fromkeys(("split", "metric"), "category"))
    by_image = [scores for *_, scores in rows]
    found = found.loc[np.repeat(found.index, [len(scores) for scores in by_image])].reset_index(drop=True)
    images = {
        "image_id": list(chain.from_iterable(by_image)),
        "domain": [
            domains.get(row[3], {}).get(image) for row, scores in zip(rows, by_image, strict=True) for image in scores
        ],
        "score_percent": list(chain.from_iterable(scores.values() for scores in by_image)),
    }
    by_row = typed(images, {"image_id": "int64", "domain": "category", "score_percent": "float64"})
    by_row["score_percent"] *= 100
    order = [*IDENTITY, "split", "image_id", "domain", "metric", "score_percent", *CONDITIONS]
    return pd.concat([found, by_row], axis=1)[order]


def captions(connection: Connection, split: str | None) -> pd.DataFrame:
    query = select(Caption.run_id, RunRow.dataset_id, Caption.split, Caption.image_id, Caption.caption)
    query = query.join(RunRow).order_by(Caption.run_id, Caption.split, Caption.image_id)
    images = {
        (dataset, image): (file, domain, tuple(references))
        for dataset, image, file, domain, references in connection.execute(
            select(Image.dataset_id, Image.image_id, Image.file, Image.domain, Image.references)
        )
    }
    rows = [
        (run, split, image, *images.get((dataset, image), (None, None, ())), caption)
        for run, dataset, split, image, caption in _read(connection, query, Caption, split=split)
    ]
    dtypes = {
        "split": "category",
        "image_id": "int64",
        "file": "string",
        "domain": "category",
        "references": "object",
        "caption": "string",
    }
    return _frame(connection, rows, dtypes)


def costs(connection: Connection) -> pd.DataFrame:
    query = select(Cost.run_id, Cost.name, Cost.unit, Cost.value, Cost.low, Cost.high, Cost.reason)
    rows = _read(connection, query.join(RunRow).order_by(Cost.run_id, Cost.id), Cost)
    units = {name: unit for _, name, unit, *_ in rows if unit}  # what was not measured may have none
    named = [
        (run, with_unit(name, unit or units.get(name, "")), *measured, unit or units.get(name, ""), reason)
        for run, name, unit, *measured, reason in rows
    ]
    dtypes = {
        "cost": "category",
        **dict.fromkeys(("value", "low", "high"), "float64"),
        "unit": "category",
        "reason": "string",
    }
    return _frame(connection, named, dtypes)


def epochs(connection: Connection) -> pd.DataFrame:
    dtypes = {
        "status": "category",
        "stage": "int64",
        "stage_name": "category",
        "objective": "category",
        "epoch": "int64",
        "step": "int64",
        "learning_rate": "float64",
        "train_loss": "float64",
        "val_CIDEr-D_percent": "float64",
        "duration_s": "float64",
        "images_per_s": "float64",
    }
    stored = (Epoch.stage, Epoch.stage_name, Epoch.objective, Epoch.epoch, Epoch.step, Epoch.learning_rate)
    measured = (Epoch.train_loss, Epoch.val_cider, Epoch.seconds, Epoch.images_per_second)
    query = select(Epoch.run_id, RunRow.status, *stored, *measured).join(RunRow)
    rows = connection.execute(query.order_by(Epoch.run_id, Epoch.stage, Epoch.epoch)).all()
    found = _frame(connection, rows, dtypes)
    found["val_CIDEr-D_percent"] *= 100
    return found


def with_unit(name: str, unit: str) -> str:
    """A cost's name with its unit, unless the name has it: "latency_median_s", "gmac_beam"; counts have none."""
    if unit in {"", "1"} or f"_{_SPELT_OUT.get(unit, unit)}_" in f"_{name}_":
        return name
    return f"{name}_{unit.replace('/', '_per_').replace('%', 'percent')}"


def signature_text(signature: Mapping[str, str]) -> str:
    """The fields of a signature in their order, joined by bars."""
    return "|".join(f"{field}:{value}" for field, value in signature.items())


def typed(columns: Mapping[str, Sequence[Any]], dtypes: Mapping[str, str]) -> pd.DataFrame:
    """The columns that `dtypes` names, in its order, of these types even without a row; None is missing."""
    return pd.DataFrame({name: _series(columns[name], dtype) for name, dtype in dtypes.items()})


def _series(values: Sequence[Any], dtype: str) -> pd.Series[Any]:
    """Categories stand in the order in which they first occur."""
    if dtype != "category":
        return pd.Series(values, dtype=dtype)
    found = dict.fromkeys(value for value in values if value is not None)
    return pd.Series(pd.Categorical(values, categories=pd.Index(list(found), dtype="str")))


def _read(connection: Connection, query: Select[*tuple[Any, ...]], table: type[Base], **chosen: str | None) -> Rows:
    """Rows of finished runs whose columns have the chosen values (None: any); StoreError for one that no row has."""
    columns = {name: getattr(table, name) for name, value in chosen.items() if value is not None}
    query = query.where(RunRow.status == "finished", *(column == chosen[name] for name, column in columns.items()))
    rows = connection.execute(query).all()
    if not rows:
        for name, column in columns.items():
            check_known(name, chosen[name], connection.scalars(select(column).distinct().order_by(column)))
    return rows


def check_known(name: str, value: str | None, known: Iterable[str]) -> None:
    """StoreError where a value is none of the known ones, unless there are none at all."""
    there_are = list(known)
    if there_are and value is not None and value not in there_are:
        raise StoreError(f"no {name} {value!r} in these results", f"there are: {', '.join(there_are)}")


def _frame(connection: Connection, rows: Rows, dtypes: Mapping[str, str]) -> pd.DataFrame:
    """Rows that begin with their run's id, as columns: what identifies the run, those of `dtypes`, the conditions."""
    ids, *columns = _transposed(rows, 1 + len(dtypes))
    runs = _runs(connection)
    runs = runs.take(runs.index.get_indexer(pd.Index(ids, dtype="int64"))).reset_index(drop=True)
    for name in runs.columns[runs.dtypes == "category"]:
        runs[name] = runs[name].cat.remove_unused_categories()
    data = typed(dict(zip(dtypes, columns, strict=True)), dtypes)
    return pd.concat([runs[list(IDENTITY)], data, runs[list(CONDITIONS)]], axis=1)


def _runs(connection: Connection) -> pd.DataFrame:
    """What identifies every planned run, whatever its status, by its id and in the order of planning."""
    identity = (RunRow.id, RunRow.key, RunRow.model, RunRow.role, RunRow.seed, DatasetRow.name)
    query = select(*identity, RunRow.track, DatasetRow.fingerprint, RunRow.signature, RunRow.code)
    query = query.join(DatasetRow)
    rows = []
    for *fields, signature, stored in connection.execute(query.order_by(RunRow.id)):
        code = code_of(stored)
        rows.append((*fields, signature_text(signature), *((code.model, code.revision) if code else (None, None))))
    dtypes = {"id": "int64", **IDENTITY, **CONDITIONS}
    return typed(dict(zip(dtypes, _transposed(rows, len(dtypes)), strict=True)), dtypes).set_index("id")


def _transposed(rows: Rows, width: int) -> list[Sequence[Any]]:
    return list(zip(*rows, strict=True)) or [()] * width
