"""The written pages: what they show, and that they are whole, escaped, offline, with links that lead somewhere."""

import base64
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from reports.html import attention
from reports.html.attention import stored_maps
from reports.html.rendering import SCRIPTS, linked, model_page, run_page, runs_file
from reports.html.sections import method
from results.runs.leaderboard import leaderboard
from results.store.store import Store
from tests.reports.conftest import HOSTILE
from tests.reports.examples import contents, group, row
from tests.reports.html.parsed import Element, Page, every, rows, run_texts

LOOKS = "gallery-attention.html"


def board(pages: dict[str, Page]) -> Element:
    return next(pages["index.html"].root.find("table", id="group-1-table"))


def headings(table: Element) -> list[str]:
    return [heading.text for heading in next(table.find("thead")).find("th")]


def test_every_page_is_there(pages: dict[str, Page]) -> None:
    expected = ["index", "nocaps", "costs", "trade-offs", "curves", "gallery", "gallery-2", "models", "method"]
    assert {f"{name}.html" for name in expected} < set(pages)
    assert sum(name.startswith("models/") for name in pages) == 9, (
        "seven models, whatever became of them, two references"
    )
    assert sum(name.startswith("run.html?") for name in pages) == 12, (
        "nine finished, one failed, one skipped, one planned"
    )


def test_nothing_said_becomes_markup(report: Path, pages: dict[str, Page]) -> None:
    texts = run_texts(report)
    for name, page in pages.items():
        if name == "run.html":
            continue  # has a script of its own
        scripts = list(page.root.find("script"))
        sources = [script.attributes.get("src", "").rsplit("/", 1)[-1] for script in scripts]
        assert sources[: len(SCRIPTS)] == [*SCRIPTS], name
        is_board = name == "index.html" or name.startswith("leaderboard-")
        more = 5 if name in {"gallery.html", "gallery-2.html"} else 1 if name == LOOKS or is_board else 0
        assert len(sources) - len(SCRIPTS) == more, name
        assert not [script.text for script in scripts if script.text]
        for element in every(page.root):
            assert not any(attribute.startswith("on") for attribute in element.attributes), name
        text = texts.get(name) or (report / name).read_text(encoding="utf-8")
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e]", text), name
    assert "<script>document.title = 'hacked'</script> & \"quoted\"" in pages["gallery.html"].root.text
    assert "the loss is NaN at step 312 <b>" in pages["index.html"].root.text
    assert HOSTILE[:8] not in (report / LOOKS).read_text(encoding="utf-8").partition("<main")[2]
    data = [file.read_text(encoding="utf-8") for file in (report / "gallery").glob("*.js")]
    assert len(data) == 6
    assert not any("<" in script for script in data)


def test_links_stay_inside_and_lead_somewhere_and_ids_are_unique(report: Path, pages: dict[str, Page]) -> None:
    for name, page in pages.items():
        ids = [element.attributes["id"] for element in every(page.root) if "id" in element.attributes]
        assert len(ids) == len(set(ids)), name
        for element in every(page.root):
            for target in (element.attributes.get("href"), element.attributes.get("src")):
                if target is None or target.startswith("data:"):
                    continue
                if element.attributes.get("class") == "out":
                    assert re.match("https?://", target), f"{name}: {target}"
                    continue
                assert ":" not in target, f"{name}: {target}"
                file, _, anchor = re.sub(r"\?[^#]*", "", target).partition("#")
                if file:
                    resolved = (report / name).parent / file
                    assert resolved.resolve().is_relative_to(report.resolve())
                    assert resolved.is_file(), f"{name}: {target}"
                else:
                    assert anchor in ids, f"{name}: {target}"


def test_the_leaderboard_is_sorted_and_references_stand_apart(pages: dict[str, Page]) -> None:
    table = board(pages)
    assert headings(table) == [
        "Rank", "Model", "CIDEr-D", "95 % interval", "BLEU-4", "METEOR", "ROUGE-L", "BLEU-1", "BLEU-2", "BLEU-3",
        "Parameters", "Computation", "Latency", "Training time",
    ]  # fmt: skip
    assert [heading.text for heading in table.find("th") if "aria-sort" in heading.attributes] == ["CIDEr-D"]
    ranked, apart, references = table.find("tbody")
    values = [float(next(row.find("td", class_="leading")).attributes["data-value"]) for row in ranked.find("tr")]
    assert values == sorted(values, reverse=True)
    assert len(values) == 4
    assert "Not ranked" in apart.text
    assert [next(row.find("th")).text.strip()[:5] for row in references.find("tr")] == ["human", "retri"]
    assert [tag.text for tag in table.find("span", class_="tag")] == ["baseline", "human level", "nearest image"]
    name, cells = rows(table)[0]
    assert (name.strip()[:15], cells[1].text) == ("expansionnet_v2", "104.9 ±0.9")
    assert float(cells[1].attributes["data-value"]) == pytest.approx(1.0486)


def test_what_sets_a_reference_apart_is_a_note_of_its_star(pages: dict[str, Page]) -> None:
    section = next(pages["index.html"].root.find("section", class_="board"))
    human = next(next(section.find("tbody", class_="reference")).find("tr"))
    assert "nrefs" not in human.text
    star = next(human.find("a", class_="star"))
    note = next(section.find("li", id=star.attributes["href"].removeprefix("#")))
    assert note.text.startswith("* human: nrefs: 4")


def test_bars_and_bands_say_what_their_numbers_say(pages: dict[str, Page]) -> None:
    table = board(pages)
    best, second, *_ = (next(row.find("td", class_="place")) for row in next(table.find("tbody")).find("tr"))
    assert table.attributes["data-ranks"] == "2"
    assert [cell.attributes["style"] for cell in (best, second)] == [
        "--from: 0.0%; --to: 50.0%",
        "--from: 50.0%; --to: 100.0%",
    ]
    assert len(list(table.find("svg", class_="whisker"))) == 6
    assert next(pages["index.html"].root.find("p", class_="legend")).text.count("95 % intervals") == 1


def test_what_is_missing_is_a_dash_with_its_reason(pages: dict[str, Page]) -> None:
    cells = next(cells for name, cells in rows(board(pages)) if name.strip().startswith("blind"))
    meteor = cells[headings(board(pages)).index("METEOR") - 1]
    assert "data-value" not in meteor.attributes
    reason = next(meteor.find("span")).attributes["title"]
    assert reason == "METEOR took longer than 300 s"
    note = next(meteor.find("a")).attributes["href"].removeprefix("#")
    assert reason in next(pages["index.html"].root.find("li", id=note)).text


def test_groups_that_differ_are_apart_and_say_in_what(pages: dict[str, Page]) -> None:
    boards = [page.root for name, page in pages.items() if name == "index.html" or name.startswith("leaderboard-")]
    assert len(boards) == 4, "two splits, each with another beam size"
    said = {(beam, other) for beam, other in (("3", "1"), ("1", "3"))}
    for root in boards:
        [section] = root.find("section", class_="board")
        signature = next(next(section.find("div", class_="signature")).find("code")).text
        found = {pair for pair in said if f"beam ({pair[0]} here; {pair[1]} there)" in " ".join(section.text.split())}
        assert {f"|beam:{beam}|" in signature for beam, _ in found} == {True}
        [others] = root.find("details", id="other-tables")
        assert len(list(others.find("a"))) == 3
    menus = [select.attributes["name"] for select in boards[0].find("select")]
    assert menus == ["Data", "Other conditions", "metric", "family"]


def test_domains_have_their_own_table(pages: dict[str, Page]) -> None:
    tables = list(pages["nocaps.html"].root.find("table"))
    assert len(tables) == 2, "one a beam size; the test split has no domains"
    assert headings(tables[0]) == ["Model", "in-domain, 2", "near-domain, 2", "out-domain, 2", "overall, 6"]


def test_runs_without_a_result_and_skipped_images_are_listed_with_reasons(pages: dict[str, Page]) -> None:
    listed = next(pages["index.html"].root.find("details", id="unfinished")).text
    for words in ("aoanet", "FloatingPointError", "updown", "needs region boxes", "image_transformer", "planned"):
        assert words in listed
    assert "epoch 1\nTraceback" in next(pages["run.html?run=aoanet-s1-plain"].root.find("pre")).text
    skipped = next(pages["index.html"].root.find("section", id="skipped")).text
    assert "train/<b>9</b>.jpg truncated after 12 bytes" in " ".join(skipped.split())


def test_computation_is_in_multiply_accumulates_and_never_in_flops(report: Path, pages: dict[str, Page]) -> None:
    for words in ("Computation per caption", "no CUDA device", "linear 20.0\u202fMMAC, matmul 1.00\u202fMMAC"):
        assert words in pages["costs.html"].root.text
    assert not [path for path in report.rglob("*.html") if "FLOP" in path.read_text(encoding="utf-8").upper()]


def test_the_gallery_shows_pictures_captions_and_odd_words(pages: dict[str, Page]) -> None:
    cards = {card.attributes["id"]: card for card in pages["gallery.html"].root.find("article")}
    assert len(cards) == 12
    picture = next(cards["image-1"].find("img")).attributes
    assert (picture["src"], picture["loading"]) == ("gallery/1-1.png", "lazy")
    for words in ("a red ball by a cube", "expansionnet_v2", "blind", "human", "retrieval"):
        assert words in cards["image-1"].text
    assert "is not there" in next(cards["image-3"].find("span", class_="unseen")).text
    assert "outside" in next(cards["image-4"].find("span", class_="unseen")).text
    assert "no words" in cards["image-3"].text, "an empty caption is said to be empty"
    assert any(len(one.text) > 9_700 for one in pages["gallery.html"].root.find("details")), "whole, but folded"
    card = next(pages["gallery-2.html"].root.find("article", id="image-7"))
    assert {word.text for word in card.find("span", class_="odd")} == {"beside", "number", "yellow", "7"}
    assert "a large red ball left of a yellow cube" in card.text, "marking changes no text"


def test_pages_of_runs_and_models_hold_what_is_known(pages: dict[str, Page]) -> None:
    text = pages["run.html?run=blind-s1-plain"].root.text
    for words in ('"beam_size": 3', "versions.torch", "0.3.0+g1234567", "4e5f6a7b", "8 epochs"):
        assert words in text
    page = pages["models/expansionnet_v2.html"].root
    results = next(page.find("section", id="results"))
    assert "Rank 1 by CIDEr-D; 4 models" in results.text
    assert "near-domain" in results.text
    assert len(list(next(results.find("ul", class_="examples")).find("li"))) == 3
    assert "Computation per caption" in next(page.find("section", id="costs")).text
    run = pages["run.html?run=expansionnet_v2-s1-plain"].root
    assert len(list(run.find("ul", class_="examples"))) == 2, "a split each"
    assert "1 cost not measured" in run.text
    assert sum("reference" in name for name, _ in rows(next(pages["models.html"].root.find("table", id="models")))) == 2
    assert "4 models and 2 references on scenes, 9 finished runs" in pages["index.html"].root.text


def test_the_method_says_of_each_table_what_was_tested(pages: dict[str, Page]) -> None:
    notes = [note.text for note in pages["method.html"].root.find("p", class_="note")]
    tested = [tuple(re.findall(r"\d[\d,]*", note)) for note in notes if note.startswith("Tested")]
    assert tested[:3] == [("6", "12"), ("1", "12", "1,", "2"), ("6", "6")], "baselines and places, then of six images"
    assert tested[3:] == [("1", "12"), ("1", "6")], "a table of one row has no pairs"


def test_the_method_says_what_was_tuned() -> None:
    tuned = replace(group(row("m2")), signature={"tuned": "12x300+2x3#1a2b3c"})
    said, nothing = (table["tuning"] for table in method(contents(tuned, group(row("m2"))))["tables"])
    assert (re.findall(r"\d+", said), nothing) == (["12", "300", "2", "3"], "")


def panels(report: Path, image: int) -> list[list[list[Any]]]:
    """By caption the panels of an image, as its script has them: word, place in words, overlay, regions."""
    file = f"gallery/looks-1-{image}.js"
    found = re.fullmatch(r"captionbench\.attention\((.*)\);\n", (report / file).read_text(encoding="utf-8"))
    assert found
    named, captions = json.loads(f"[{found[1]}]")
    assert named == file
    return list(captions)


def test_every_word_has_a_panel_which_the_page_waits_with(report: Path, pages: dict[str, Page]) -> None:
    page = pages[LOOKS].root
    images = {article.attributes["id"]: article for article in page.find("article")}
    assert list(images) == ["image-2", "image-5"], "hardest first"
    for number, models in ((2, ["expansionnet_v2"]), (5, ["expansionnet_v2", "transformer_base"])):
        said = list(images[f"image-{number}"].find("details"))
        assert [next(each.find("summary")).text.split()[0] for each in said] == models
        written = panels(report, number)
        assert len(written) == len(models)
        for words in ([word for word, *_ in caption] for caption in written):
            assert [words[0], words[1][:8], words[2]] == ["a", "<script>", "ball"]
            assert "\x00" not in words[1]
    assert not [*page.find("figure"), *page.find("rect")]
    links = [link.attributes["href"] for link in pages["gallery.html"].root.find("a")]
    assert sorted(link for link in links if link.startswith(LOOKS)) == [LOOKS, f"{LOOKS}#image-2", f"{LOOKS}#image-5"]
    assert LOOKS not in (report / "gallery-2.html").read_text(), "no maps of that split"


def test_a_grid_is_a_pixel_a_cell_and_regions_stay_in_the_picture(report: Path) -> None:
    _, where, heat, regions = panels(report, 2)[0][0]
    found = np.asarray(Image.open(io.BytesIO(base64.b64decode(heat.removeprefix("data:image/png;base64,")))))
    assert found.shape == (3, 4, 4)
    assert np.argwhere(found[..., 3]).tolist() == [[0, 0]]
    assert (where, regions) == ("most at the top left", [])
    several, alone, nothing = panels(report, 5)[1]
    first, second = several[3]
    assert (first[0], first[2:4], first[5]) == (0.0, [50.0, 100.0], 1)
    assert (second[:4], second[5]) == ([50.0, 0.0, 50.0, 50.0], 0)
    assert second[4] < first[4]
    assert len(alone[3]) == 1
    assert nothing[1:] == ["nowhere", "", []]


def test_a_budget_leaves_images_out_and_counts_them(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = leaderboard(store)
    for budget, images, left_out in ((3_000_000, [2, 5], 0), (3 * 250, [2], 1)):
        monkeypatch.setattr(attention, "BUDGET", budget)
        [(captions, missing)] = stored_maps(store, groups, {}).values()
        assert (list(captions), missing) == (images, left_out)
    monkeypatch.setattr(attention, "BUDGET", 100)
    assert stored_maps(store, groups, {}) == {}


@pytest.mark.parametrize("name", ["../../up", "a/b/c", "A", "", "x" * 300, "con.txt", "show_tell/../up"])
def test_no_name_becomes_a_path(name: str) -> None:
    for file in (model_page(name), runs_file(name)):
        assert file.count("/") == 1
        assert ".." not in file
        assert len(file) < 150
    assert not set(run_page(name).removeprefix("run.html?run=")) & set("/?#&<>\"'")
    assert model_page("show_tell/fc") == "models/show_tell.fc.html" != model_page("show_tell.fc")


def test_addresses_and_arxiv_numbers_become_links() -> None:
    said = str(linked("CVPR 2020 (arXiv:1912.08226v2) and https://github.com/a/b."))
    assert said == (
        'CVPR 2020 (<a class="out" rel="noreferrer" href="https://arxiv.org/abs/1912.08226">arXiv:1912.08226v2</a>) '
        'and <a class="out" rel="noreferrer" href="https://github.com/a/b">https://github.com/a/b</a>.'
    )


@pytest.mark.parametrize(
    "text", ["javascript:alert(1)", "data:text/html,x", "file:///etc/passwd", "//host/x", "https://", "arXiv:hep-th/1"]
)
def test_anything_else_stays_text(text: str) -> None:
    assert "<a" not in linked(text)


@pytest.mark.parametrize("text", ['https://a.b/"onclick="x', "https://a.b/<script>", "<b>https://a.b</b>", "'\"&<>"])
def test_nothing_said_ends_the_link(text: str) -> None:
    assert not any(part in str(linked(text)) for part in ("<script", "<b>", 'onclick="'))
