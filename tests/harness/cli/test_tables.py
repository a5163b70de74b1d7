"""Small tables on a terminal: names break after one of their own signs alone, numbers never."""

from __future__ import annotations

import pytest

from harness.cli.output import TableFormat, format_table

HEADER = ("Model", "Params", "Encoder", "Step", "Greedy", "Beam 5", "Teacher", "Training")
NUMBERS = ("206.83 M", "20.375", "0.102", "22.512", "31.004", "22.583", "67.586")


@pytest.mark.parametrize(
    ("width", "shown"), [(60, "object_relation_"), (80, "object_relation_"), (200, "object_relation_transformer")]
)
def test_neither_words_of_names_nor_numbers_are_broken(monkeypatch: pytest.MonkeyPatch, width: int, shown: str) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    text = format_table(HEADER, [("object_relation_transformer", *NUMBERS)], TableFormat.table)
    row = text.splitlines()[2:]
    assert row[0].split() == [shown, *" ".join(NUMBERS).split()]
    assert "".join(line[: len(shown) + 2].strip() for line in row) == "object_relation_transformer"
