"""Rows are made of what the stores' own tests read from both databases: here SQLite is enough."""

from pathlib import Path

import pytest


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Where a store may be made: a SQLite file."""
    return str(tmp_path / "bench.sqlite")
