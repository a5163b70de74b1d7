"""Costs of finished runs that were postponed: which runs lack them, and storing them later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import delete, select, update

from results.errors import StoreError
from results.records import Quantity
from results.store import checks
from results.store.rows import cost_columns, insert_all
from results.store.schema import Cost, RunRow
from results.store.store import Store


def runs_without_cost(store: Store, reason: str) -> set[str]:
    """Keys of the finished runs that have a cost missing for exactly this reason."""
    query = select(RunRow.key).join(Cost).where(RunRow.status == "finished", Cost.reason == reason)
    with store.reading() as connection:
        return set(connection.scalars(query.distinct()))


def add_costs(store: Store, key: str, costs: Mapping[str, Quantity], environment: Mapping[str, Any]) -> None:
    """Replace the finished run's `costs` of these names, and add `environment` to its own.

    Raises:
        StoreError: the run has not finished, or a value may not be stored.
    """
    columns = cost_columns(key, costs)
    added = checks.json_object(environment, f"run {key}: environment")
    with store.writing() as connection:
        query = select(RunRow.id, RunRow.environment).where(RunRow.key == key, RunRow.status == "finished")
        found = connection.execute(query).one_or_none()
        if found is None:
            raise StoreError(f"run {key} has not finished: there is nothing to add costs to")
        connection.execute(delete(Cost).where(Cost.run_id == found.id, Cost.name.in_(costs)))
        insert_all(connection, Cost, columns, run_id=found.id)
        known = {**found.environment, **added}
        connection.execute(update(RunRow).where(RunRow.id == found.id).values(environment=known))
