"""The written pages as HTML: complete, escaped, offline, with links that lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

from reports.html.rendering import SCRIPTS
from tests.reports.html.parsed import Page, every


def test_every_page_is_there(pages: dict[str, Page]) -> None:
    expected = ["index", "nocaps", "costs", "trade-offs", "curves", "gallery", "gallery-2", "models", "method"]
    assert {f"{name}.html" for name in expected} < set(pages)
    assert sum(name.startswith("models/") for name in pages) == 9, (
        "seven models, whatever became of them, two references"
    )
    assert sum(name.startswith("runs/") for name in pages) == 12, "nine finished, one failed, one skipped, one planned"


def test_nothing_said_becomes_markup(pages: dict[str, Page]) -> None:
    for name, page in pages.items():
        scripts = list(page.root.find("script"))
        sources = [script.attributes.get("src", "").rsplit("/", 1)[-1] for script in scripts]
        assert sources[: len(SCRIPTS)] == [*SCRIPTS], name
        more = 5 if name in {"gallery.html", "gallery-2.html"} else 1 if name == "gallery-attention.html" else 0
        assert len(sources) - len(SCRIPTS) == more, name
        assert not [script.text for script in scripts if script.text]
        for element in every(page.root):
            assert not any(attribute.startswith("on") for attribute in element.attributes), name
    assert "<script>document.title = 'hacked'</script> & \"quoted\"" in pages["gallery.html"].root.text
    assert "the loss is NaN at step 312 <b>" in pages["index.html"].root.text


def test_no_character_that_html_forbids(report: Path) -> None:
    for path in report.rglob("*.html"):
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e]", path.read_text(encoding="utf-8")), path.name


def test_links_stay_inside_and_lead_somewhere(report: Path, pages: dict[str, Page]) -> None:
    for name, page in pages.items():
        ids = {element.attributes["id"] for element in every(page.root) if "id" in element.attributes}
        for element in every(page.root):
            for target in (element.attributes.get("href"), element.attributes.get("src")):
                if target is None or target.startswith("data:"):
                    continue
                if element.attributes.get("class") == "out":
                    assert re.match("https?://", target), f"{name}: {target}"
                    continue
                assert ":" not in target, f"{name}: {target}"
                file, _, anchor = target.partition("#")
                if file:
                    resolved = (report / name).parent / file
                    assert resolved.resolve().is_relative_to(report.resolve())
                    assert resolved.is_file(), f"{name}: {target}"
                else:
                    assert anchor in ids, f"{name}: {target}"


def test_no_address_is_ever_loaded(report: Path) -> None:
    for path in report.rglob("*"):
        if path.suffix in {".css", ".js", ".html"}:
            text = re.sub(r'<a class="out" rel="noreferrer" href="https?://', "<a", path.read_text(encoding="utf-8"))
            assert not re.search(r"""(url\(|@import|(src|href)=["']?(https?:)?//)""", text)


def test_ids_are_unique(pages: dict[str, Page]) -> None:
    for name, page in pages.items():
        ids = [element.attributes["id"] for element in every(page.root) if "id" in element.attributes]
        assert len(ids) == len(set(ids)), name


def test_every_drawing_has_a_title_but_those_that_say_nothing(pages: dict[str, Page]) -> None:
    drawings = [drawing for page in pages.values() for drawing in page.root.find("svg")]
    drawings = [drawing for drawing in drawings if drawing.attributes.get("aria-hidden") != "true"]
    assert drawings
    assert all(next(drawing.find("title")).text for drawing in drawings)
