"""What the written pages show: scores, groups, reasons, gallery, runs and floors."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reports.html.parsed import Page, rows


def test_a_long_caption_is_whole_but_folded(pages: dict[str, Page]) -> None:
    folded = list(pages["gallery.html"].root.find("details"))
    assert any(len(one.text) > 9_700 for one in folded)


def test_the_leaderboard_is_sorted_and_references_stand_apart(pages: dict[str, Page]) -> None:
    table = next(pages["index.html"].root.find("table", id="group-1-table"))
    headings = [heading.text for heading in next(table.find("thead")).find("th")]
    assert headings == [
        "Model", "Place", "CIDEr-D", "95 % interval", "BLEU-4", "METEOR", "ROUGE-L", "BLEU-1", "BLEU-2", "BLEU-3",
        "Parameters", "Computation", "Latency", "Training time",
    ]  # fmt: skip
    [by] = [heading.text for heading in table.find("th") if "aria-sort" in heading.attributes]
    assert by == "CIDEr-D"
    ranked, apart, references = table.find("tbody")
    values = [float(next(row.find("td", class_="leading")).attributes["data-value"]) for row in ranked.find("tr")]
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
    assert cells[1].text == "104.9 ±0.9"
    assert float(cells[1].attributes["data-value"]) == pytest.approx(1.0486)


def test_what_sets_a_reference_apart_is_a_note_of_its_star(pages: dict[str, Page]) -> None:
    section = next(pages["index.html"].root.find("section", class_="board"))
    human = next(next(section.find("tbody", class_="reference")).find("tr"))
    assert human.attributes["data-model"] == "human"
    assert "nrefs" not in human.text
    star = next(human.find("a", class_="star"))
    note = next(section.find("li", id=star.attributes["href"].removeprefix("#")))
    assert note.text.startswith("* human: nrefs: 4")


def test_bars_and_bands_say_what_their_numbers_say(pages: dict[str, Page]) -> None:
    section = next(pages["index.html"].root.find("section", class_="board"))
    table = next(section.find("table"))
    best, second, *_ = (next(row.find("td", class_="place")) for row in next(table.find("tbody")).find("tr"))
    assert table.attributes["data-ranks"] == "2"
    assert [cell.attributes["style"] for cell in (best, second)] == [
        "--from: 0.0%; --to: 50.0%",
        "--from: 50.0%; --to: 100.0%",
    ]
    assert len(list(table.find("svg", class_="whisker"))) == 6
    note = " ".join(next(section.find("p", class_="note")).text.split())
    assert "on a scale from 0 to" in note
    assert "its ticks are, from left to right, blind 31.0, retrieval 55.0, human 130.0." in note


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


def test_computation_is_in_multiply_accumulates_and_never_in_flops(report: Path, pages: dict[str, Page]) -> None:
    assert "Computation per caption" in pages["costs.html"].root.text
    assert "no CUDA device" in pages["costs.html"].root.text
    assert "linear 20.0\u202fMMAC, matmul 1.00\u202fMMAC" in pages["costs.html"].root.text
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
        "When the training ended: finished learning (+",
    ):
        assert words in text


def test_the_method_says_of_each_table_what_was_tested(pages: dict[str, Page]) -> None:
    notes = [note.text for note in pages["method.html"].root.find("p", class_="note")]
    assert [note for note in notes if note.startswith("Tested")] == [
        "Tested against floors: 6 pairs of a row and a floor on 12 images, 4,096 exchanges from seed 2024.",
        "Tested for places: 1 pair of rows on 12 images.",
        "Tested against floors: 6 pairs of a row and a floor on 6 images, 64 exchanges from seed 2024.",
        "Tested against floors: 1 pair of a row and a floor on 12 images, 4,096 exchanges from seed 2024.",
        "Tested against floors: 1 pair of a row and a floor on 6 images, 64 exchanges from seed 2024.",
    ], "of six images no test is significant, and a table of one row has no pairs"
    assert not [note for note in notes if note.startswith("Not the architecture")], "no control has run"


def test_rows_below_a_floor_say_so_in_place_of_a_place(pages: dict[str, Page]) -> None:
    _, nocaps, *_ = pages["index.html"].root.find("section", class_="board")
    places = [cell.text for cell in nocaps.find("td") if "floor" in cell.text]
    assert [text.rstrip("abcdefg") for text in places] == ["not above the floor"] * 3 + ["floor"]
    assert any("not above the floor: not significantly better than" in note.text for note in nocaps.find("li"))


def test_models_stand_beside_people_only_where_that_was_scored(pages: dict[str, Page]) -> None:
    test, nocaps, *_ = pages["index.html"].root.find("section", class_="board")
    people = next(test.find("div", class_="people"))
    assert "Against 4 references per image" in people.text
    names = [next(row.find("a")).text for row in next(people.find("tbody")).find("tr")]
    assert names == ["human", "expansionnet_v2", "transformer_base", "show_tell_lstm", "blind"]
    assert "METEOR took longer" in people.text
    assert not list(nocaps.find("div", class_="people"))


def test_models_and_references_are_counted_alike_on_every_page(pages: dict[str, Page]) -> None:
    assert "4 models and 2 references on scenes, 9 finished runs" in pages["index.html"].root.text
    lead = next(pages["models.html"].root.find("p", class_="lead")).text
    assert "7 models and 2 references to compare with" in " ".join(lead.split()), "those that failed or wait included"
    table = next(pages["models.html"].root.find("table", id="models"))
    assert sum("reference" in name for name, _ in rows(table)) == 2
