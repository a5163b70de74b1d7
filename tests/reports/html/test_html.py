"""The written pages: complete, escaped, offline, and honest about what is missing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

import pytest

from reports.errors import ReportError
from reports.html.report import write_report
from results.db.store import Store
from results.records import DatasetRecord, EpochRecord, Outcome, Quantity, RunSpec, SplitResult

VOID = {"meta", "link", "img", "br", "wbr", "input"}


@dataclass
class Element:
    """A parsed element with its own and its descendants' text."""

    tag: str
    attributes: dict[str, str]
    text: str = ""
    children: list[Element] = field(default_factory=list)

    def find(self, tag: str, **attributes: str) -> Iterator[Element]:
        """Descendants of this tag whose attributes contain these words."""
        for child in self.children:
            wanted = all(
                value in child.attributes.get(name.rstrip("_"), "").split() for name, value in attributes.items()
            )
            if child.tag == tag and wanted:
                yield child
            yield from child.find(tag, **attributes)


class Page(HTMLParser):
    """Parses a page into elements and fails on tags that do not match."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.root = Element("", {})
        self.stack = [self.root]
        self.feed(path.read_text(encoding="utf-8"))
        assert len(self.stack) == 1, f"{path.name}: <{self.stack[-1].tag}> is never closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.stack[-1].children.append(element)
        if tag not in VOID:
            self.stack.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.stack[-1].children.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop().tag == tag, f"</{tag}> at {self.getpos()}"

    def handle_data(self, data: str) -> None:
        for element in self.stack:
            element.text += data


@pytest.fixture(scope="session")
def pages(report: Path) -> dict[str, Page]:
    return {path.relative_to(report).as_posix(): Page(path) for path in report.rglob("*.html")}


def rows(table: Element) -> list[tuple[str, list[Element]]]:
    """Name and number cells of the rows of a table, its heading left out."""
    return [
        (next(row.find("th")).text, list(row.find("td"))) for body in table.find("tbody") for row in body.find("tr")
    ]


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
        assert sources[0] == "tables.js", name
        assert len(sources) == (3 if name in {"gallery.html", "gallery-2.html"} else 1), name
        assert not [script.text for script in scripts if script.text]
        for element in every(page.root):
            assert not any(attribute.startswith("on") for attribute in element.attributes), name
    assert "<script>document.title = 'hacked'</script> & \"quoted\"" in pages["gallery.html"].root.text
    assert "the loss is NaN at step 312 <b>" in pages["index.html"].root.text


def test_no_character_that_html_forbids(report: Path) -> None:
    for path in report.rglob("*.html"):
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e]", path.read_text(encoding="utf-8")), path.name


def test_a_long_caption_is_whole_but_folded(pages: dict[str, Page]) -> None:
    folded = list(pages["gallery.html"].root.find("details"))
    assert any(len(one.text) > 9_700 for one in folded)


def every(element: Element) -> Iterator[Element]:
    for child in element.children:
        yield child
        yield from every(child)


def test_links_stay_inside_and_lead_somewhere(report: Path, pages: dict[str, Page]) -> None:
    for name, page in pages.items():
        ids = {element.attributes["id"] for element in every(page.root) if "id" in element.attributes}
        for element in every(page.root):
            for target in (element.attributes.get("href"), element.attributes.get("src")):
                if target is None or target.startswith("data:"):
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
            assert not re.search(r"""(url\(|@import|(src|href)=["']?(https?:)?//)""", path.read_text(encoding="utf-8"))


def test_ids_are_unique(pages: dict[str, Page]) -> None:
    for name, page in pages.items():
        ids = [element.attributes["id"] for element in every(page.root) if "id" in element.attributes]
        assert len(ids) == len(set(ids)), name


def test_the_leaderboard_is_sorted_and_references_stand_apart(pages: dict[str, Page]) -> None:
    table = next(pages["index.html"].root.find("table", id="group-1-table"))
    headings = [heading.text for heading in next(table.find("thead")).find("th")]
    assert headings[:5] == ["Model", "CIDEr-D", "Tier", "BLEU-1", "BLEU-2"]
    assert next(table.find("thead")).children[0].children[1].attributes["aria-sort"] == "descending"
    ranked, apart, references = table.find("tbody")
    values = [float(next(row.find("td")).attributes["data-value"]) for row in ranked.find("tr")]
    assert values == sorted(values, reverse=True)
    assert len(values) == 4
    assert "Reference, not ranked" in apart.text
    assert [next(row.find("th")).text.strip()[:5] for row in references.find("tr")] == ["human", "retri"]
    assert [tag.text for tag in table.find("span", class_="tag")] == ["floor", "human level", "nearest image"]
    assert "blind" in ranked.text


def test_scores_are_times_100_with_the_spread_over_seeds(pages: dict[str, Page]) -> None:
    table = next(pages["index.html"].root.find("table", id="group-1-table"))
    name, cells = rows(table)[0]
    assert name.strip().startswith("expansionnet_v2")
    assert cells[0].text == "104.9 ±0.9"
    assert float(cells[0].attributes["data-value"]) == pytest.approx(1.0486)


def test_what_is_missing_is_a_dash_with_its_reason(pages: dict[str, Page]) -> None:
    table = next(pages["index.html"].root.find("table", id="group-1-table"))
    cells = next(cells for name, cells in rows(table) if name.strip().startswith("blind"))
    headings = [heading.text for heading in next(table.find("thead")).find("th")]
    meteor = cells[headings.index("METEOR") - 1]
    assert "data-value" not in meteor.attributes
    assert next(meteor.find("span")).attributes["title"] == "METEOR took longer than 300 s"
    note = next(meteor.find("a")).attributes["href"].removeprefix("#")
    assert "METEOR took longer than 300 s" in next(pages["index.html"].root.find("li", id=note)).text


def test_groups_that_differ_are_apart_and_say_in_what(pages: dict[str, Page]) -> None:
    sections = list(pages["index.html"].root.find("section", class_="board"))
    assert len(sections) == 4, "two splits, each with a table of its own for the few rows of another beam size"
    for section in sections[:2]:
        assert "they differ in beam (3 here; 1 there)." in " ".join(section.text.split())
        signature = next(next(section.find("div", class_="signature")).find("code")).text
        assert "|beam:3|" in signature
    assert signature.startswith("CIDEr-D|split:nocaps|data:scenes#1f3a09bc|nrefs:5|")
    for section in sections[2:]:
        assert [body.text.strip() for body in section.find("tbody", class_="apart")] == ["beam: 1"]
        assert not list(section.find("div", class_="signature"))


def test_domains_have_their_own_table(pages: dict[str, Page]) -> None:
    tables = list(pages["nocaps.html"].root.find("table"))
    assert len(tables) == 2, "one a beam size; the test split has no domains"
    headings = [heading.text for heading in next(tables[0].find("thead")).find("th")]
    assert headings == ["Model", "in-domain, 2", "near-domain, 2", "out-domain, 2", "overall, 6"]


def test_runs_without_a_result_are_listed_with_reason_and_log(pages: dict[str, Page]) -> None:
    listed = next(pages["index.html"].root.find("section", id="unfinished")).text
    for words in ("aoanet", "FloatingPointError", "updown", "needs region boxes", "image_transformer", "planned"):
        assert words in listed
    assert "epoch 1\nTraceback" in next(pages["runs/aoanet-s1-plain.html"].root.find("pre")).text


def test_skipped_images_are_named(pages: dict[str, Page]) -> None:
    assert "train/<b>9</b>.jpg truncated after 12 bytes" in " ".join(
        next(pages["index.html"].root.find("section", id="skipped")).text.split()
    )


def test_computation_is_in_gmac_and_never_in_flops(report: Path, pages: dict[str, Page]) -> None:
    assert "Beam, mean length, GMAC" in pages["costs.html"].root.text
    assert "no CUDA device" in pages["costs.html"].root.text
    assert "linear 0.0200 GMAC, matmul 0.00100 GMAC" in pages["costs.html"].root.text
    for path in report.rglob("*.html"):
        assert "FLOP" not in path.read_text(encoding="utf-8").upper(), path.name


def test_the_gallery_shows_pictures_captions_and_references(pages: dict[str, Page]) -> None:
    cards = {card.attributes["id"]: card for card in pages["gallery.html"].root.find("article")}
    assert len(cards) == 12
    first = cards["image-1"]
    picture = next(first.find("img")).attributes
    assert (picture["src"], picture["loading"]) == ("gallery/1-1.png", "lazy")
    assert "a red ball by a cube" in first.text
    for model in ("expansionnet_v2", "blind", "human", "retrieval"):
        assert model in first.text
    assert "no longer there" in next(cards["image-3"].find("div", class_="placeholder")).text
    assert "outside" in next(cards["image-4"].find("div", class_="placeholder")).text
    assert "no words" in cards["image-3"].text, "an empty caption is said to be empty"


def test_the_gallery_marks_words_that_no_reference_has(pages: dict[str, Page]) -> None:
    card = next(pages["gallery-2.html"].root.find("article", id="image-7"))
    assert {word.text for word in card.find("span", class_="odd")} == {"beside", "number", "yellow", "7"}
    assert "a large red ball left of a yellow cube" in card.text, "marking changes no text"


def test_run_pages_hold_configuration_environment_and_epochs(pages: dict[str, Page]) -> None:
    text = pages["runs/blind-s1-plain.html"].root.text
    for words in (
        '"beam_size": 3',
        "versions.torch",
        "0.3.0+g1234567",
        "results revision 1",
        "4e5f6a7b",
        "zoo/models/m2.py",
        "8 epochs",
        "this epoch was not validated",
    ):
        assert words in text


def test_sentences_about_a_model_are_separated(tmp_path: Path) -> None:
    with Store(tmp_path / "bench.sqlite") as store:
        store.record_dataset(DatasetRecord("tiny", "f", str(tmp_path), {}, ()))
        store.plan([RunSpec("k", "blind", "model", 1, "controlled", "f", {"card": {"summary": "No image"}}, {})])
        folder = write_report(store, tmp_path / "report").parent
    lead = next(Page(folder / "models" / "blind.html").root.find("p", class_="lead"))
    assert lead.text.startswith("No image. A trained model")


def test_the_method_says_of_each_table_what_was_tested(pages: dict[str, Page]) -> None:
    notes = [note.text for note in pages["method.html"].root.find("p", class_="note")]
    assert [note for note in notes if note.startswith("Tested")] == [
        "Tested against floors: 6 pairs of a row and a floor on 12 images, 4,096 exchanges from seed 2024.",
        "Tested for tiers: 3 pairs of rows on 12 images, 4,096 exchanges from seed 2024.",
        "Tested against floors: 6 pairs of a row and a floor on 6 images, 64 exchanges from seed 2024.",
        "Tested against floors: 1 pair of a row and a floor on 12 images, 4,096 exchanges from seed 2024.",
        "Tested against floors: 1 pair of a row and a floor on 6 images, 64 exchanges from seed 2024.",
    ], "of six images no test is significant, and a table of one row has no pairs"


def test_rows_below_a_floor_say_so_in_place_of_a_tier(pages: dict[str, Page]) -> None:
    _, nocaps, *_ = pages["index.html"].root.find("section", class_="board")
    tiers = [cell.text for cell in nocaps.find("td") if "floor" in cell.text]
    assert [text.rstrip("abcdefg") for text in tiers] == ["not above the floor"] * 3 + ["floor"]
    assert any("not above the floor: not significantly better than" in note.text for note in nocaps.find("li"))


def test_models_stand_beside_people_only_where_that_was_scored(pages: dict[str, Page]) -> None:
    test, nocaps, *_ = pages["index.html"].root.find("section", class_="board")
    people = next(test.find("div", class_="people"))
    assert "Against 4 references an image" in people.text
    names = [next(row.find("a")).text for row in next(people.find("tbody")).find("tr")]
    assert names == ["human", "expansionnet_v2", "transformer_base", "show_tell_lstm", "blind"]
    assert "METEOR took longer" in people.text
    assert not list(nocaps.find("div", class_="people"))


def test_every_drawing_has_a_title_but_those_that_say_nothing(pages: dict[str, Page]) -> None:
    drawings = [drawing for page in pages.values() for drawing in page.root.find("svg")]
    drawings = [drawing for drawing in drawings if drawing.attributes.get("aria-hidden") != "true"]
    assert drawings
    assert all(next(drawing.find("title")).text for drawing in drawings)


def test_an_empty_store_gives_a_report_that_says_so(tmp_path: Path) -> None:
    with Store(tmp_path / "bench.sqlite") as store:
        index = write_report(store, tmp_path / "report")
    assert "No run has finished yet" in Page(index).root.text
    assert not (tmp_path / "report" / "gallery.html").exists()


def test_an_unvalidated_epoch_and_missing_scores_can_be_drawn(tmp_path: Path) -> None:
    with Store(tmp_path / "bench.sqlite") as store:
        store.record_dataset(DatasetRecord("tiny", "f", str(tmp_path), {}, ()))
        store.plan([RunSpec("../../up", "m", "model", 1, "controlled", "f", {}, {})])
        store.record_epoch("../../up", EpochRecord(0, "s", "xe", 0, 1, 1e-3, 2.0, None, 1.0, 1.0))
        store.finish(
            "../../up",
            Outcome((SplitResult("test", {}, {"overall": {"CIDEr-D": Quantity(None, "no Java")}}, {}),), {}, {}),
        )
        index = write_report(store, tmp_path / "report")
    assert "no Java" in Page(index).root.text
    assert len(list((tmp_path / "report" / "runs").iterdir())) == 1, "a key never becomes a path"
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix == ".html") == []


def test_writing_again_drops_stale_pages(store: Store, tmp_path: Path) -> None:
    folder = write_report(store, tmp_path / "report").parent
    (folder / "runs" / "stale.html").write_text("old", encoding="utf-8")
    write_report(store, folder)
    assert not (folder / "runs" / "stale.html").exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".report-")]


def test_a_failure_half_way_leaves_the_old_report(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = write_report(store, tmp_path / "report")
    before = index.read_bytes()

    def fail(*_: object) -> str:
        raise RuntimeError("half way")

    monkeypatch.setattr("reports.html.report.run_page", fail)
    with pytest.raises(RuntimeError):
        write_report(store, tmp_path / "report")
    assert index.read_bytes() == before
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".report-")]


def test_a_folder_with_other_files_is_never_replaced(store: Store, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work", encoding="utf-8")
    with pytest.raises(ReportError, match="not a report"):
        write_report(store, tmp_path / "thesis")
    assert (tmp_path / "thesis" / "chapter.tex").read_text(encoding="utf-8") == "years of work"
