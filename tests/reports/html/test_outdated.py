"""Rows that older code made are shown, and marked as such wherever scores are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rich.console import Console

from reports.html.report import write_report
from reports.tables.contents import Contents
from reports.text.markup import markdown
from reports.text.terminal import print_leaderboard
from results.store.store import Store
from tests.reports.conftest import dataset, outcome, spec
from tests.reports.html.parsed import Page

SENTENCE = "Not made by the newest code: made before zoo/models/m2.py changed."


def test_older_code_is_marked_on_page_terminal_and_table(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    newer = spec("m2", 2)
    assert newer.code is not None
    older = replace(newer, key="m2-old", seed=1, code=replace(newer.code, model="old", files={"zoo/models/m2.py": "0"}))
    with Store(tmp_path / "bench.sqlite") as store:
        store.record_dataset(dataset(tmp_path / "data"))
        store.plan([older, newer])
        for planned in (older, newer):
            store.finish(planned.key, outcome("m2", planned.seed, 0.7))
        page = Page(write_report(store, tmp_path / "report")).root
        console = Console(width=80, record=True, quiet=False, file=(tmp_path / "out").open("w"))
        print_leaderboard(store, console)
        text = markdown(Contents.read(store))
    badges = list(page.find("a", class_="badge"))
    assert [badge.attributes["title"] for badge in badges] == [f"{SENTENCE}"] * 2, "one row on each of two splits"
    assert "older code" in badges[0].text
    assert SENTENCE in " ".join(console.export_text().split())
    assert "older code" in text
    assert SENTENCE in text.replace("\\", "")
