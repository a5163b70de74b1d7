"""Numbers as they read, and published scores beside measured ones: conditions, recipes, domains, what is not stated."""

from dataclasses import replace

import pytest

from reports import numbers
from reports.html.models import model_pages
from reports.html.sections import domain_sections
from reports.tables.leaderboards import leaderboards
from reports.tables.printed import printed_table, published_cell
from results.costs import cost_info
from results.metrics import metric_order
from results.published.scores import recipes
from results.records import Quantity
from results.runs.leaderboard import Group
from results.runs.scores import OVERALL, RunScores, ScoreKey
from results.runs.spreads import Spread
from results.text import printable
from tests.reports.examples import contents, group, row, run, staged


def test_a_printed_number_stands_beside_with_its_conditions() -> None:
    updown = replace(staged("self_critical"), model="updown")
    cell = published_cell(row("updown"), group(row("updown")), {"k": updown})
    assert cell.text == "120.1"
    for words in ("objective: RL", "Cannot be compared: images, recipe.", "COCO Karpathy test", "not stated"):
        assert words in cell.note


def test_a_changed_recipe_says_where_on_every_page() -> None:
    preset = {"name": "image-transformer-paper", "schedule": {"stages": [{"objective": "self_critical"}]}}
    changed = {"digest": recipes()["image-transformer-paper"].digest, "deviations": ["size.d_model: 512 → 16"]}
    detail = replace(
        run(preset=preset, shipped_preset=changed),
        model="image_transformer/official-graph",
        dataset="coco",
        scores=RunScores({ScoreKey(split, OVERALL, "CIDEr-D"): Quantity(1.3) for split in ("test", "train")}),
    )
    shown = row(detail.model)
    cell = published_cell(shown, group(shown), {"k": detail})
    assert cell.text == "130.8"
    [page] = model_pages(contents(runs={"k": detail}), {})
    assert [note.partition(", ")[0] for note in page.nearest_printed] == ["coco test: CIDEr-D 130.8"]
    for note in (cell.note, *page.nearest_printed):
        assert "recipe (size.d_model: 512 → 16)" in note
        assert "graph of the released code" in note
    unchanged = replace(detail, config=detail.config | {"shipped_preset": changed | {"deviations": []}})
    assert "recipe" not in published_cell(shown, group(shown), {"k": unchanged}).note


def test_only_tables_of_printed_splits_have_the_column() -> None:
    def headings(group: Group) -> list[str]:
        [table], _ = leaderboards([group], {"k": replace(staged("self_critical"), model="updown")}, {})
        return [column.name for column in table.columns]

    coco = group(row("updown"))
    assert "Published" in headings(coco)
    for other in (
        replace(coco, dataset="scenes"),
        replace(coco, split="train"),
        replace(coco, rows=(), references=(row("human"),)),
    ):
        assert "Published" not in headings(other)


def test_both_frequencies_of_a_domain_have_a_table() -> None:
    spread, name = Spread(0.9, None, 1), "CIDEr-D (df:domain)"
    domains = {"in-domain": {"CIDEr-D": spread, name: Spread(0.7, None, 1)}}
    nocaps = replace(group(replace(row("expansionnet_v2"), domains=domains)), split="nocaps")
    detail = replace(staged("self_critical"), model="expansionnet_v2")
    [section] = domain_sections(contents(nocaps, runs={"k": detail}), {})
    assert list(section.tables) == ["CIDEr-D", name]
    other = section.tables[name]
    assert [column.name for column in other.columns] == ["in-domain"], "no overall score has this name"
    assert [cell.text for cell in other.lines[0].cells] == ["70.0"]


def test_printed_domains_name_the_images_that_they_are_of() -> None:
    domains = {name: {"CIDEr-D": Spread(1.0, None, 1)} for name in ("in-domain", "near-domain", "out-domain")}
    nocaps = replace(group(replace(row("expansionnet_v2"), domains=domains)), split="nocaps")
    local = dict(zip(domains, (417, 2670, 1413), strict=True))
    server = dict(zip(domains, (648, 2938, 914), strict=True))

    def shown(group: Group, images: dict[str, int]) -> tuple[list[str], str, list[str]]:
        place = (group.fingerprint, group.split)
        detail = replace(staged("self_critical"), model="expansionnet_v2")
        [section] = domain_sections(contents(group, runs={"k": detail}), {place: images})
        table = section.tables["CIDEr-D"]
        return [each.name for each in table.columns], table.lines[0].cells[-1].text, list(table.marks)

    headings, text, [note] = shown(nocaps, local)
    assert (headings[-1], text) == ("Published", "83.8 / 79.2 / 54.0 / 72.9")
    assert "417 in-domain, 2,670 near-domain, 1,413 out-domain" in note
    assert "648 in-domain" not in shown(nocaps, server)[2][0]
    assert shown(replace(nocaps, dataset="scenes"), local)[0][-1] == "overall, 4,500"


def test_a_model_that_no_paper_prints_says_so() -> None:
    cell = published_cell(row("mine"), group(row("mine")), {"k": run()})
    assert (cell.text, cell.value, bool(cell.note)) == ("—", None, True)


def test_printed_rows_name_papers_and_what_is_not_stated() -> None:
    metrics, papers = printed_table("expansionnet_v2")
    assert "CIDEr-D" in metrics
    rows = [each for rows in papers.values() for each in rows]
    assert any("not stated" in dict(each.conditions).values() for each in rows)
    assert any("140.4" in each.scores for each in rows)
    assert printed_table("mine") == ((), {})


THREE = {0: "0", 0.00123: "0.00123", 0.5: "0.500", 12: "12.0", 98.34: "98.3", 1234.5: "1,230", 2e9: "2.00e+09"}
SECONDS = {0.0123: "12.3 ms", 4.56: "4.56 s", 59.96: "1 min 00 s", 65: "1 min 05 s", 7600: "2 h 07 min"}


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        *((numbers.significant(value), text) for value, text in THREE.items()),
        *((numbers.duration(value), text) for value, text in SECONDS.items()),
        (numbers.cost(1_234_567, ""), "1.23 M"),
        (numbers.cost(999_950, ""), "1.00 M"),
        (numbers.cost(2048, "bytes"), "2.00 KiB"),
        (numbers.cost(1536, "MiB"), "1.50 GiB"),
        (numbers.cost(0.088, "GMAC"), "88.0 MMAC"),
        (numbers.cost(1.64e-05, "GMAC"), "16.4 kMAC"),
        (numbers.cost(2e-7, "GMAC"), "200 MAC"),
        (numbers.cost(0.99994, "GMAC"), "1.00 GMAC"),
        (numbers.cost(37.863, "GMAC/s"), "37.9 GMAC/s"),
        (numbers.cost(3052, "GMAC"), "3.05 TMAC"),
        (numbers.cost(10, "runs"), "10 runs"),
        (numbers.cost(1, "threads"), "1 thread"),
        (numbers.cost(12.519, "tokens"), "12.5 tokens"),
        (numbers.cost(3, "joules"), "3.00 joules"),
    ],
)
def test_numbers_take_three_digits_and_a_sensible_unit(shown: str, text: str) -> None:
    assert shown.replace("\u202f", " ") == text


def test_metrics_and_domains_come_in_the_usual_order() -> None:
    assert metric_order(["NEW", "METEOR", "BLEU-4", "CIDEr-D"]) == ["CIDEr-D", "BLEU-4", "METEOR", "NEW"]
    names = ["overall", "out-domain", "zoo", "in-domain"]
    assert numbers.domain_order(names) == ["in-domain", "out-domain", "zoo", "overall"]


def test_an_unknown_cost_names_itself_and_finds_its_theme() -> None:
    assert cost_info("energy_used", "kWh").label == "Energy used"
    assert cost_info("warm_up", "s").theme == "Time"


def test_characters_that_disturb_are_replaced() -> None:
    assert printable("a\x00b\x1b[31m\u202ec\td\né\u200f") == "a\ufffdb\ufffd[31m\ufffdc\td\né\u200f"
