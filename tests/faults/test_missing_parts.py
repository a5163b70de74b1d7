"""A table or a column that is missing: `bench db info` and `bench db upgrade` name it, and change nothing."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from results.errors import StoreError
from results.store.store import Store
from tests.harness.conftest import bench

CASES = {
    "DROP TABLE image_influences": "table image_influences",
    "DROP TABLE runs": "table runs",
    "ALTER TABLE runs DROP COLUMN seed": "column runs.seed",
    "ALTER TABLE costs DROP COLUMN high": "column costs.high",
}


@pytest.mark.parametrize(("statement", "what"), CASES.items())
def test_info_and_upgrade_name_what_is_missing(tmp_path: Path, statement: str, what: str) -> None:
    file = tmp_path / "bench.sqlite"
    Store(file).close()
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(statement)
    info = bench("db", "info", "--workspace", tmp_path)
    assert info.exit_code == 1
    assert f"damaged: it has no {what}" in info.stdout
    assert "restore it from a copy" in info.stdout
    for words in (("db", "upgrade"), ("db", "check")):
        result = bench(*words, "--workspace", tmp_path)
        assert isinstance(result.exception, StoreError)
        assert str(result.exception) == f"the results database {file} is damaged: it has no {what}"
