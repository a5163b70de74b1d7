"""The report of a published copy, which has no captions: its tables are there, and its gallery says why it is empty."""

from __future__ import annotations

from pathlib import Path

from reports.html.report import write_report
from results.store.publish import publish
from results.store.store import Store
from tests.reports.html.parsed import Page, rows


def test_a_published_copy_has_tables_and_says_why_it_has_no_gallery(store: Store, tmp_path: Path) -> None:
    publish(store.url.render_as_string(hide_password=False), tmp_path / "published.sqlite")
    with Store(tmp_path / "published.sqlite", read_only=True) as copy:
        folder = write_report(copy, tmp_path / "report").parent
    gallery = Page(folder / "gallery.html")
    assert "The database has no captions of these" in gallery.root.text
    assert "bench db publish" in gallery.root.text
    assert list(gallery.root.find("form")) == list(gallery.root.find("article")) == []
    assert list((folder / "gallery").iterdir()) == []
    board = next(Page(folder / "index.html").root.find("table", id="group-1-table"))
    name, cells = rows(board)[0]
    assert (name.strip()[:15], cells[1].text) == ("expansionnet_v2", "104.9 ±0.9")
