"""PostgreSQL: what goes wrong with a server ends in a message that says what to do."""

from typing import Any

import pytest
from sqlalchemy import create_engine, make_url
from sqlalchemy.pool import NullPool

import results.store.engine
from results import Store, StoreError
from results.store.revisions import describe
from tests.results.store.test_opening import refused


def test_short_urls_use_the_driver_that_is_installed(postgres_url: str, make: Any) -> None:
    for scheme in ("postgresql", "postgres"):
        with Store(postgres_url.replace("postgresql+psycopg", scheme)) as store:
            store.record_dataset(make.dataset())
    found = describe(postgres_url)
    assert (found.backend, found.bytes, found.rows["datasets"]) == ("postgresql", None, 1)


def test_servers_and_databases_that_are_not_there(postgres_url: str) -> None:
    there = make_url(postgres_url)
    refused("postgresql://me:secret@127.0.0.1:9/captions", "cannot be reached", "***")
    refused(there.set(database="nothing"), "cannot be reached", "does not exist")
    refused(there.set(username="nobody", password="secret"), "cannot be reached", "nobody")


def test_a_database_of_something_else(postgres_url: str) -> None:
    engine = create_engine(postgres_url, poolclass=NullPool)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE recipes (name TEXT)")
    refused(postgres_url, "holds no captionbench results")


def test_a_user_that_may_not_write(postgres_url: str, make: Any) -> None:
    Store(postgres_url).close()
    engine = create_engine(postgres_url, poolclass=NullPool)
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP ROLE IF EXISTS reader")
        connection.exec_driver_sql("CREATE ROLE reader LOGIN")
        connection.exec_driver_sql("GRANT USAGE ON SCHEMA public TO reader")
        connection.exec_driver_sql("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
    reader = make_url(postgres_url).set(username="reader").render_as_string(hide_password=False)
    with Store(reader, create=False) as store, pytest.raises(StoreError, match="may not be written") as caught:
        store.record_dataset(make.dataset())
    assert caught.value.hint is not None
    with Store(reader, read_only=True) as store:
        assert store.status("nothing") is None


def test_a_writer_that_does_not_end(postgres_url: str, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results.store.engine, "BUSY_TIMEOUT_S", 0.2)
    with Store(postgres_url) as store, Store(postgres_url) as other:
        with other.writing(), pytest.raises(StoreError, match="locked by another process"):
            store.record_dataset(make.dataset())
        with other.writing():
            assert store.status("nothing") is None, "readers do not wait"
        store.record_dataset(make.dataset())


def test_a_connection_that_was_lost_while_idle_is_made_anew(postgres_url: str, make: Any) -> None:
    with Store(postgres_url) as store:
        store.record_dataset(make.dataset())
        engine = create_engine(postgres_url, poolclass=NullPool)
        with engine.begin() as connection:
            others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
            connection.exec_driver_sql(f"{others} AND datname = current_database()")
        store.plan([make.spec()])
        assert store.status(make.spec().key) == "planned"
