"""Pages of models and runs: places, domains, costs, examples, and how a run differs from its preset."""

from __future__ import annotations

from dataclasses import replace

from reports.html.gallery import GalleryPage
from reports.html.models import examples_by_run, model_pages
from results.records import Quantity
from results.runs.views import GalleryCaption, GalleryItem, Spread
from tests.reports.examples import contents, group, row, run
from tests.reports.html.parsed import Page


def gallery(*ciders: float | None) -> GalleryPage:
    """Images numbered from 0 with captions of the run "k" that score so."""
    items = tuple(
        GalleryItem(
            n, f"{n}.png", None, ("two houses",), (GalleryCaption("m", "model", 1, "k", "a big house", cider),), 0
        )
        for n, cider in enumerate(ciders)
    )
    return GalleryPage("gallery.html", "d test", items, dict.fromkeys(range(len(items)), ("", "none")), (), {}, {}, "")


def test_examples_are_the_lowest_the_median_and_the_highest() -> None:
    found = examples_by_run(gallery(0.5, None, 0.1, 0.9, 0.2, 0.7))["k"]
    assert [(each.which, each.image_id) for each in found] == [("lowest", 2), ("median", 0), ("highest", 3)]
    assert found[0].page == "gallery.html#image-2"
    assert found[0].pieces == (("a ", False), ("big", True), (" house", False)), "compared by stem"


def test_one_image_is_one_example() -> None:
    assert [each.which for each in examples_by_run(gallery(0.5))["k"]] == ["lowest"]
    assert examples_by_run(gallery(None)) == {}


def test_results_have_a_line_a_domain() -> None:
    spread = Spread(0.5, None, 1)
    domains = {"out-domain": {"CIDEr-D": spread}, "in-domain": {"CIDEr-D": spread}}
    costs = {"train_seconds": Quantity(60.0, unit="s"), "energy_per_image": Quantity(None, "no meter", "J")}
    of = group(replace(row("m2"), domains=domains, costs=costs), row("aoanet"))
    [page] = model_pages(contents(of, runs={"k": run()}), {})
    [result] = page.results
    assert [line.model for line in result.table.lines] == ["in-domain", "out-domain", "overall"]
    assert "2 models" in result.place
    assert [(label, cell.text) for label, _, cell in page.costs] == [("Training time", "1\u202fmin 00\u202fs")]


def test_pages_show_them(pages: dict[str, Page]) -> None:
    page = pages["models/expansionnet_v2.html"].root
    results = next(page.find("section", id="results"))
    assert "Place 1 by CIDEr-D; 4 models listed." in results.text
    assert "near-domain" in results.text
    assert len(list(next(results.find("ul", class_="examples")).find("li"))) == 3
    assert "Computation per caption" in next(page.find("section", id="costs")).text
    run = pages["runs/expansionnet_v2-s1-plain.html"].root
    assert len(list(run.find("ul", class_="examples"))) == 2, "a split each"
    assert "1 cost not measured" in run.text
