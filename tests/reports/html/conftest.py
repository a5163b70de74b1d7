"""The pages of a report, parsed."""

from pathlib import Path

import pytest

from tests.reports.html.parsed import Page, run_texts


@pytest.fixture(scope="session")
def pages(report: Path) -> dict[str, Page]:
    """The parsed pages by their file."""
    pages = {path.relative_to(report).as_posix(): Page(path) for path in report.rglob("*.html")}
    return pages | {address: Page(text) for address, text in run_texts(report).items()}
