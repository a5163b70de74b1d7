"""Stores of an earlier release, and of none, are refused or upgraded, and lose nothing on the way."""

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, event

import results.store.migrations
from results import Store, StoreError
from results.runs.leaderboard import leaderboard
from results.store.merge import merge
from results.store.revisions import describe, upgrade
from results.store.schema import RELEASE
from tests.results.runs.conftest import url

__all__ = ["url"]  # files alone
LATER = """
import sqlalchemy as sa
from alembic import op

revision = "v2_1_0"
down_revision = "v2_0_0"


def upgrade() -> None:
    with op.batch_alter_table("costs") as batch:
        batch.add_column(sa.Column("place", sa.String))
    op.execute("CREATE TABLE places (name VARCHAR)")
"""


@pytest.fixture
def old(add: Callable[..., str], store: Store, tmp_path: Path) -> Path:
    """A store with a finished run, of this release."""
    add("blind")
    store.close()
    return Path(shutil.copy(tmp_path / "bench.sqlite", tmp_path / "old.sqlite"))


@pytest.fixture
def later(old: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """This captionbench is a later release than wrote `old`: it adds a column and a table."""
    assert old.exists()
    own = Path(results.store.migrations.__file__).parent
    copy = shutil.copytree(own, tmp_path / "migrations", ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "versions" / "v2_1_0.py").write_text(LATER)
    monkeypatch.setattr(results.store.migrations, "__file__", str(copy / "__init__.py"))
    monkeypatch.setattr("results.store.revisions.RELEASE", "v2_1_0")


def dump(file: Path) -> list[str]:
    with closing(sqlite3.connect(file)) as connection:
        return list(connection.iterdump())


def test_the_newest_revision_is_the_release_of_the_schema() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(results.store.migrations.__file__).parent))
    assert ScriptDirectory.from_config(config).get_heads() == [RELEASE]


def columns_of(file: Path) -> dict[str, list[tuple[object, ...]]]:
    """Name, type and NOT NULL of each column, by table, in the order of their names."""
    with closing(sqlite3.connect(file)) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        found = {name: connection.execute(f"PRAGMA table_info({name})").fetchall() for (name,) in tables}
    return {name: sorted(column[1:4] for column in columns) for name, columns in found.items()}


def test_a_store_of_1_0_loses_no_row_and_gets_these_tables(tmp_path: Path) -> None:
    old = Path(shutil.copy(Path(__file__).parents[1] / "assets/v1_0_0.sqlite", tmp_path / "old.sqlite"))
    before = dump(old)
    with pytest.raises(StoreError, match=r"written by captionbench 1\.0\.0"):
        Store(old)
    with closing(sqlite3.connect(old)) as connection:
        records = connection.execute("SELECT key, config FROM runs ORDER BY key").fetchall()
    assert upgrade(old) == "v1_0_0"
    Store(tmp_path / "new.sqlite").close()
    assert columns_of(old) == columns_of(tmp_path / "new.sqlite")
    others = ('INTO "runs"', "alembic", "CREATE TABLE runs")
    kept = [line for line in before if line.startswith("INSERT") and not any(other in line for other in others)]
    assert set(kept) < set(dump(old))
    with closing(sqlite3.connect(old)) as connection:
        assert connection.execute("SELECT key, record FROM runs ORDER BY key").fetchall() == records
        assert set(connection.execute("SELECT model, kind FROM runs")) == {
            ("human", "reference"),
            ("show_tell", "trained"),
            ("ensemble:show_tell:2", "ensemble"),
        }
        assert connection.execute("SELECT count(*) FROM runs WHERE config IS NOT NULL").fetchone() == (0,)
        for wrong in ("kind = 'other'", "config = 'no object'", "record = NULL"):
            with pytest.raises(sqlite3.IntegrityError):
                connection.execute(f"UPDATE runs SET {wrong}")  # noqa: S608
    assert sum(row.seeds == (0, 1) for group in leaderboard(Store(old)) for row in group.rows) == 2  # two splits


@pytest.mark.usefixtures("later")
def test_an_older_store_is_refused_until_it_is_upgraded_and_keeps_every_row(old: Path, tmp_path: Path) -> None:
    before = dump(old)
    with Store(tmp_path / "new.sqlite") as new:
        for opening in (Store, lambda file: merge(new, file)):
            with pytest.raises(StoreError, match=r"written by captionbench 2\.0\.0") as caught:
                opening(old)
            assert caught.value.hint is not None
            assert caught.value.hint.endswith(f"bench db upgrade --db {old}")
    assert describe(old).upgrade
    assert dump(old) == before
    assert upgrade(old) == "v2_0_0"
    kept = [line for line in before if line.startswith("INSERT") and "costs" not in line and "alembic" not in line]
    assert set(kept) < set(dump(old))
    assert describe(old).rows["costs"] == sum('INTO "costs"' in line for line in before) > 0
    assert describe(old).release == "2.1.0"
    assert upgrade(old) == "v2_1_0", "again is nothing to do"


@pytest.mark.usefixtures("later")
def test_an_upgrade_that_is_interrupted_changes_nothing(old: Path) -> None:
    def stop(_conn: object, _cursor: object, statement: str, *_: object) -> None:
        if "CREATE TABLE places" in statement:
            raise KeyboardInterrupt

    before = dump(old)
    event.listen(Engine, "before_cursor_execute", stop)
    try:
        with pytest.raises(KeyboardInterrupt):
            upgrade(old)
    finally:
        event.remove(Engine, "before_cursor_execute", stop)
    assert dump(old) == before
    upgrade(old)
    Store(old).close()


@pytest.mark.usefixtures("later")
def test_rows_that_hang_on_nothing_stop_an_upgrade(old: Path) -> None:
    with closing(sqlite3.connect(old)) as connection:
        connection.execute("INSERT INTO captions VALUES (999, 'test', 1, 'a ball')")
        connection.commit()
    before = dump(old)
    with pytest.raises(StoreError, match="refer to missing rows"):
        upgrade(old)
    assert dump(old) == before


@pytest.mark.parametrize(
    ("revision", "words"),
    [("v99_0_0", r"newer captionbench, 99\.0\.0"), ("abc", "tables 'abc'"), ("v0_4_0", "tables 'v0_4_0'")],
)
def test_stores_of_other_releases_are_refused_and_stay(old: Path, revision: str, words: str) -> None:
    with closing(sqlite3.connect(old)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = ?", (revision,))
        connection.execute("ALTER TABLE runs RENAME TO cells" if revision == "v0_4_0" else "SELECT 1")
        connection.commit()
    before = old.read_bytes()
    for opening in (upgrade, Store, describe, results.open):
        with pytest.raises(StoreError, match=words) as caught:
            opening(old)  # type: ignore[operator]
        assert caught.value.hint is not None
    assert old.read_bytes() == before


def test_an_upgrade_needs_a_store(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no results database at"):
        upgrade(tmp_path / "nothing.sqlite")
    (tmp_path / "empty.sqlite").touch()
    with pytest.raises(StoreError, match="holds no captionbench results"):
        upgrade(tmp_path / "empty.sqlite")


def test_only_an_upgrade_imports_alembic(tmp_path: Path) -> None:
    program = (
        "import sys; from results import Store; import results.store.merge, results.runs.reading\n"
        f"Store({str(tmp_path / 'new.sqlite')!r}).close()\n"
        "assert 'alembic' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_server_with_the_tables_of_1_0_is_upgraded(postgres_url: str, make: Any) -> None:
    with Store(postgres_url) as store:
        store.record_dataset(make.dataset())
        make.run(store, make.outcome(0.5), "both", record={"members": ["a", "b"]}, kind="stored")
        with store.writing() as connection:
            for statement in (
                "ALTER TABLE runs RENAME COLUMN config TO execution",
                "ALTER TABLE runs RENAME COLUMN record TO config",
                "ALTER TABLE runs DROP CONSTRAINT kind",
                "ALTER TABLE runs ADD CONSTRAINT kind CHECK (kind IN ('trained', 'stored'))",
                "UPDATE runs SET execution = '{}'",
                "UPDATE alembic_version SET version_num = 'v1_0_0'",
            ):
                connection.exec_driver_sql(statement)
    assert upgrade(postgres_url, lambda row: {"made": row["model"], "of": row["kind"]}) == "v1_0_0"
    with Store(postgres_url) as store:
        spec = store.spec("both-1")
        assert (spec.kind, spec.record) == ("ensemble", {"members": ["a", "b"]})
        assert spec.config == {"made": "both", "of": "ensemble"}
