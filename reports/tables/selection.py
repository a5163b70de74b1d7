"""Which tables an export writes, and which of their rows and columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from reports.columns import Cell, default_column_names
from reports.numbers import DASH, listed
from reports.tables.contents import Contents
from reports.tables.leaderboards import leaderboards
from reports.tables.table import Table
from results.errors import StoreError
from results.metrics import RANKING_METRIC
from results.runs.leaderboard import Group
from results.runs.selection import keep_models

ALL_TABLES = ALL_COLUMNS = "all"


@dataclass(frozen=True)
class NumberedTable:
    """A table's group, and its number among all tables of the store, from 1; the largest comes first."""

    number: int
    group: Group

    def title(self, contents: Contents) -> str:
        """Its name, what tells it from the others of its split, and how many rows it has."""
        counts = [(len(self.group.rows), "model"), (len(self.group.references), "reference")]
        sizes = listed([_counted(*count) for count in counts if count[0]])
        return ", ".join(filter(None, (contents.title(self.group), contents.details(self.group), sizes)))


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def model_names(contents: Contents) -> list[str]:
    """The models and references that have a row, in the order of the tables."""
    return list(dict.fromkeys(row.model for group in contents.groups for row in (*group.rows, *group.references)))


def matching_tables(
    contents: Contents, *, models: Collection[str] | None = None, split: str | None = None
) -> list[NumberedTable]:
    """The tables of a split with rows of these models, and without other rows: those of most rows first.

    Raises:
        StoreError: there is no such split.
    """
    splits = list(dict.fromkeys(group.split for group in contents.groups))
    if split is not None and split not in splits:
        raise StoreError(f"--split {split}: no result is of this split", f"choose of {', '.join(splits)}")
    tables = []
    for index, group in enumerate(contents.groups, start=1):
        if split not in {None, group.split}:
            continue
        selected = group if models is None else keep_models(group, models)
        if selected.rows or selected.references:
            tables.append(NumberedTable(index, selected))
    return sorted(tables, key=lambda table: (-len(table.group.rows), table.number))


def choose_tables(tables: Sequence[NumberedTable], table: str | None) -> list[NumberedTable]:
    """The table of a number, all of them, or without a choice that of most rows.

    Raises:
        StoreError: it is no number of one of these tables.
    """
    if table == ALL_TABLES:
        return sorted(tables, key=lambda candidate: candidate.number)
    if table is None:
        return list(tables[:1])
    matching = [candidate for candidate in tables if str(candidate.number) == table]
    if not matching:
        numbers = listed(
            [str(candidate.number) for candidate in sorted(tables, key=lambda candidate: candidate.number)], "or"
        )
        raise StoreError(f"--table {table}: there is no such table", f"choose {numbers}, or all")
    return matching


def with_tables(contents: Contents, tables: Sequence[NumberedTable]) -> Contents:
    """The contents with these tables alone."""
    return replace(contents, groups=tuple(table.group for table in tables))


def leaderboards_with(
    contents: Contents, names: Sequence[str] | None, default: Callable[[str], Sequence[str]] = default_column_names
) -> list[tuple[Group, Table]]:
    """Each group's table with these columns, named in part and in any case; without names, with the `default` ones.

    A table that lacks one does without.
    """
    tables = [leaderboards([group], contents.runs, {})[0][0] for group in contents.groups]
    column_names = list(dict.fromkeys(column.name for table in tables for column in table.columns))
    for name in names or ():
        if tables and name != ALL_COLUMNS and not _matching(column_names, name):
            hint = f"choose from {', '.join(column_names)}, or all"
            if _matching(default_column_names(RANKING_METRIC), name):
                raise StoreError(f"--metrics {name}: no row has a number for it", hint)
            raise StoreError(f"--metrics {name} is no column of the leaderboard", hint)
    return [
        (group, choose_columns(table, default(group.metric) if names is None else names))
        for group, table in zip(contents.groups, tables, strict=True)
    ]


def choose_columns(table: Table, names: Sequence[str]) -> Table:
    """The table with the columns of these names that have a number.

    Raises:
        StoreError: several columns match one name.
    """
    column_names = [column.name for column in table.columns]
    chosen_indices: list[int] = []
    for name in names:
        indices = list(range(len(column_names))) if name == ALL_COLUMNS else _matching(column_names, name)
        if len(indices) > 1 and name != ALL_COLUMNS:
            several = ", ".join(column_names[index] for index in indices)
            raise StoreError(f"--metrics {name} may be each of: {several}", "write more of its name")
        chosen_indices += indices
    table = table.only([index for index in dict.fromkeys(chosen_indices) if table.shows(index)])
    references = []
    for line in table.references:  # rows without a model do not say why they have no cost
        references.append(replace(line, cells=tuple(Cell("") if cell.text == DASH else cell for cell in line.cells)))
    return replace(table, references=tuple(references))


def _matching(names: Sequence[str], name: str) -> list[int]:
    """The indices of the columns of this name; else of those with this part of a name."""
    pattern, *plain = (re.sub(r"[^a-z0-9]", "", text.lower()) for text in (name, *names))
    exact = [index for index, text in enumerate(plain) if text == pattern]
    return exact or [index for index, text in enumerate(plain) if pattern and pattern in text]
