"""What data frames of runs share: the columns that identify a run, types, and units in the names of costs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pandas as pd
from sqlalchemy import Connection, Select, select

from results.errors import StoreError
from results.runs.reading import code_of
from results.store.schema import Base, DatasetRow, RunRow

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


def read_rows(connection: Connection, query: Select[*tuple[Any, ...]], table: type[Base], **chosen: str | None) -> Rows:
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


def frame_of_runs(connection: Connection, rows: Rows, dtypes: Mapping[str, str]) -> pd.DataFrame:
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
