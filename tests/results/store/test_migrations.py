"""Stores of every release upgrade to the tables of this one, and lose nothing on the way."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, create_engine, event, inspect, select

import results.store.migrations
from results import Quantity, Store, StoreError
from results.comparison.run_snapshot import run_snapshots
from results.runs import fetch
from results.store.information import describe
from results.store.rescoring import missing_influences
from results.store.revisions import release
from results.store.schema import RELEASE, REVISION, Base
from results.store.upgrade import revision_of, upgrade

ASSETS = Path(__file__).parents[1] / "assets"
RELEASED = sorted(ASSETS.glob("v*.sqlite"))


@pytest.fixture(params=RELEASED, ids=lambda file: file.stem)
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of a store as a release wrote it."""
    return Path(shutil.copy(request.param, tmp_path / "bench.sqlite"))


def migrations() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(results.store.migrations.__file__).parent))
    return config


def tables(engine: Engine) -> dict[str, Any]:
    """Everything that the database itself knows of its tables; constraints in an order of their own."""
    looking = inspect(engine)
    return {
        name: {
            "columns": {
                column["name"]: (str(column["type"]), column["nullable"], column["default"])
                for column in looking.get_columns(name)
            },
            "key": looking.get_pk_constraint(name),
            "foreign": sorted(map(repr, looking.get_foreign_keys(name))),
            "unique": sorted(map(repr, looking.get_unique_constraints(name))),
            "checks": sorted(map(repr, looking.get_check_constraints(name))),
            "indexes": sorted(map(repr, looking.get_indexes(name))),
            "options": looking.get_table_options(name) if engine.dialect.name == "sqlite" else {},
        }
        for name in looking.get_table_names()
    }


def rows(file: Path) -> dict[str, list[tuple[object, ...]]]:
    """The contents of a SQLite file, by table, without the columns that only some releases have."""
    with sqlite3.connect(file) as connection:
        found = {}
        for table in Base.metadata.sorted_tables:
            known = {column for _, column, *_ in connection.execute(f"PRAGMA table_info({table.name})")}
            names = [f'"{column.name}"' for column in table.columns if column.name in known - {"low", "high", "code"}]
            if known and table.name != "schema_info":
                found[table.name] = connection.execute(f"SELECT {', '.join(names)} FROM {table.name}").fetchall()  # noqa: S608
    connection.close()
    return found


def test_every_earlier_release_has_its_store_among_the_assets() -> None:
    script = ScriptDirectory.from_config(migrations())
    revisions = [revision.revision for revision in script.walk_revisions()]
    assert script.get_heads() == [RELEASE] == revisions[:1]
    assert [file.stem for file in RELEASED] == sorted(revisions[1:])


def test_an_old_store_is_refused_until_it_is_upgraded(old: Path) -> None:
    before = old.read_bytes()
    for options in ({}, {"create": False}, {"read_only": True}):
        with pytest.raises(StoreError, match="written by captionbench 0") as caught:
            Store(old, **options)
        assert caught.value.hint is not None
        assert caught.value.hint.endswith(f"bench db upgrade --db {old}")
    assert describe(old).upgrade
    assert sqlite3.connect(old).execute("SELECT count(*) FROM cells").fetchone()[0] == len(rows(old)["cells"]) > 0
    assert old.stat().st_size == len(before)


def test_an_upgrade_keeps_every_row_and_makes_the_new_tables(old: Path, tmp_path: Path) -> None:
    before = rows(old)
    written_by = revision_of(old)
    assert upgrade(old) == written_by
    after = rows(old)
    assert {name: after[name] for name in before} == before
    assert all(before.values()), "the asset has rows in every table"
    Store(tmp_path / "new.sqlite").close()
    upgraded, new = (create_engine(f"sqlite:///{file}") for file in (old, tmp_path / "new.sqlite"))
    assert tables(upgraded) == tables(new)
    with upgraded.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []
    assert upgrade(old) == RELEASE, "again is nothing to do"
    with Store(old) as store:
        group = next(group for group in fetch.leaderboard(store) if group.rows)
        assert [(row.model, row.seeds, row.scores["CIDEr-D"].mean) for row in group.rows] == [
            ("transformer_base", (0, 1), 0.78125)
        ]
        assert fetch.gallery(store, "6aa29c8f00112233", "test")[0].references[1] == "ein grüner Würfel"
        assert {failure.status for failure in fetch.failures(store)} == {"failed", "skipped", "running", "planned"}
    assert describe(old).release == release(RELEASE)


def test_an_upgraded_store_takes_what_the_release_brought(old: Path, make: Any) -> None:
    upgrade(old)
    with Store(old) as store:
        latency = Quantity(2.0, None, "ms", 1.5, 2.5)
        outcome = make.outcome(attention=(make.attention(),), costs={"latency": latency})
        influences = {"BLEU-4": {1: 0.5, 2: 0.25, 30: 0.0}}
        store.finish("updown-0", replace(outcome, splits=(replace(outcome.splits[0], influences=influences),)))
        assert fetch.run_detail(store, "updown-0").costs["latency"].high == 2.5
        assert fetch.attention_maps(store, "updown-0", "test") == {1: make.attention()}
        [snapshot] = run_snapshots(store, ["updown-0"])
        assert snapshot.influences == {"test": influences}
        assert missing_influences(store, "transformer_base-0", {"METEOR"}) == {}, "it has no score of METEOR"
        assert missing_influences(store, "transformer_base-0", {"CIDEr-D"}) == {"test": {"CIDEr-D"}}


def test_revisions_from_nothing_make_the_tables_of_a_new_store(url: str) -> None:
    """On PostgreSQL too, where no asset is kept."""
    with Store(url) as store:
        new = create_engine(store.url)
        made = tables(new)
        with store.writing() as connection:
            Base.metadata.drop_all(connection)
            REVISION.drop(connection)
        with store.writing() as connection:
            config = migrations()
            config.attributes["connection"] = connection
            command.upgrade(config, RELEASE)
            assert connection.scalar(select(REVISION.c.version_num)) == RELEASE
        assert tables(new) == made
        new.dispose()


def test_an_upgrade_that_is_interrupted_changes_nothing(old: Path) -> None:
    def stop(_conn: object, _cursor: object, statement: str, *_: object) -> None:
        if "CREATE TABLE image_influences" in statement:
            raise KeyboardInterrupt

    before, written_by = rows(old), describe(old).release
    event.listen(Engine, "before_cursor_execute", stop)
    try:
        with pytest.raises(KeyboardInterrupt):
            upgrade(old)
    finally:
        event.remove(Engine, "before_cursor_execute", stop)
    assert describe(old).release == written_by
    assert rows(old) == before
    upgrade(old)
    Store(old).close()


def test_an_upgrade_needs_a_store_that_it_knows(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no results database at"):
        upgrade(tmp_path / "nothing.sqlite")
    (tmp_path / "empty.sqlite").touch()
    with pytest.raises(StoreError, match="holds no captionbench results"):
        upgrade(tmp_path / "empty.sqlite")
    Store(tmp_path / "bench.sqlite").close()
    for revision, words in (("v99_0_0", "newer captionbench, 99.0.0"), ("abc", "revision 'abc'")):
        with sqlite3.connect(tmp_path / "bench.sqlite") as connection:
            connection.execute("UPDATE alembic_version SET version_num = ?", (revision,))
        connection.close()
        for opening in (upgrade, Store, describe):
            with pytest.raises(StoreError, match=words) as caught:
                opening(tmp_path / "bench.sqlite")
            assert caught.value.hint is not None


def test_rows_that_hang_on_nothing_stop_an_upgrade(old: Path) -> None:
    written_by = describe(old).release
    with sqlite3.connect(old) as connection:
        connection.execute("INSERT INTO captions VALUES (999, 'test', 1, 'a ball')")
    connection.close()
    with pytest.raises(StoreError, match="refer to missing rows"):
        upgrade(old)
    assert describe(old).release == written_by


def test_only_an_upgrade_imports_alembic(tmp_path: Path) -> None:
    program = (
        "import sys; from results import Store; import results.store.upgrade, results.store.merge, results.runs.fetch\n"
        f"Store({str(tmp_path / 'new.sqlite')!r}).close()\n"
        "assert 'alembic' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
