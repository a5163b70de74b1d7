"""The pages of a report, parsed."""

from pathlib import Path

import pytest

from tests.reports.html.parsed import Page


@pytest.fixture(scope="session")
def pages(report: Path) -> dict[str, Page]:
    """The parsed pages by their file."""
    return {path.relative_to(report).as_posix(): Page(path) for path in report.rglob("*.html")}
