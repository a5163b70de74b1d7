"""A new metric of every run, and a new cost: one line in the registry shows it in every format, with its number."""

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from harness.metrics import evaluator
from harness.metrics.contract import mean_of
from harness.metrics.evaluator import Evaluator, Round, with_intervals
from harness.metrics.signature import EvaluationSettings
from reports.html.report import write_report
from reports.model_names import display_name
from reports.tables.contents import Contents
from reports.tables.selection import matching_tables
from reports.text.csv_rows import as_csv
from reports.text.latex import latex
from reports.text.markup import as_json, markdown
from results import costs, metrics
from results.costs import CostInfo
from results.metrics import MetricInfo
from results.records import DatasetRecord, ImageRecord, Outcome, Quantity, RunSpec, SplitResult
from results.statistics.significance import Statistics
from results.store.store import Store
from tests.reports.html.parsed import Page
from tests.reports.text.test_terminal import header, printed
from tests.reports.text.test_terminal import row as terminal_row

REFERENCES = {
    number: [f"a {colour} {shape} on a table", f"one {colour} {shape}"]
    for number, (colour, shape) in enumerate(
        (colour, shape) for colour in ("red", "blue", "green") for shape in ("ball", "cube", "cone", "ring")
    )
}
CAPTIONS = {
    ("updown", 1): "a red ball on a shelf",
    ("updown", 2): "one blue cube on a table",
    ("aoanet", 1): "two green cones",
    ("aoanet", 2): "a red cone or two",
}
POWER = {"updown": 12.5, "aoanet": 40.0}


def overlap(references: Mapping[int, Sequence[str]], captions: Mapping[int, str]) -> Statistics:
    """What a file of `harness/metrics/` holds: the share of a caption's words that some reference has."""
    scores = []
    for image_id, texts in references.items():
        words = captions[image_id].split()
        known = {word for text in texts for word in text.split()}
        scores.append(sum(word in known for word in words) / len(words))
    return mean_of("Overlap", np.array(scores))


@pytest.fixture
def new_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    """The metric's line in the registry, and its call in the evaluator."""
    line = MetricInfo(name="Overlap", meaning="share of words that a reference has.", short="O", priority=15)
    monkeypatch.setattr(metrics, "METRICS", (*metrics.METRICS, line))
    others = evaluator.round_statistics

    def with_overlap(round_: Round) -> list[Statistics]:
        return [*others(round_), overlap(round_.references, round_.captions)]

    monkeypatch.setattr(evaluator, "round_statistics", with_overlap)


@pytest.fixture
def new_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost's line in the registry."""
    line = CostInfo(
        name="draw",
        label="Power drawn",
        meaning="of the whole machine",
        theme="Energy",
        short="Power",
        position=6,
        exported=True,
        priority=25,
    )
    monkeypatch.setattr(costs, "COSTS", (*costs.COSTS, line))


@pytest.fixture
def finished(tmp_path: Path) -> Store:
    """A store of two models with two seeds each, scored as runs are, that drew some power."""
    store = Store(tmp_path / "bench.sqlite")
    images = tuple(ImageRecord(number, f"{number}.png", "test", tuple(texts)) for number, texts in REFERENCES.items())
    store.record_dataset(DatasetRecord("toys", "toys#1", str(tmp_path), {"test": len(images)}, images))
    with Evaluator(settings=EvaluationSettings(meteor=False)) as scorer:
        for (model, seed), caption in CAPTIONS.items():
            captions = dict.fromkeys(REFERENCES, caption)
            scored = with_intervals(scorer.evaluate(REFERENCES, captions))
            key = f"{model}-{seed}"
            spec = RunSpec(key, model, "model", seed, "controlled", "toys#1", {"model": model}, {"beam": "3"})
            store.plan([spec])
            store.begin(key, {})
            result = SplitResult("test", captions, scored.scores, scored.per_image, influences=scored.influences)
            store.finish(key, Outcome((result,), {"draw": Quantity(POWER[model], unit="W")}, {}))
    return store


def board(page: Path) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Headings of the first leaderboard with what they mean, and its rows by model."""
    table = next(Page(page).root.find("table", id="group-1-table"))
    headings = {cell.text: cell.attributes.get("title", "") for cell in next(table.find("thead")).find("th")}
    rows = {}
    for line in next(table.find("tbody")).find("tr"):
        [name] = [model for model in POWER if model in line.text]
        rows[name] = [cell.text.strip() for cell in line.children]
    return headings, rows


def markdown_rows(text: str) -> tuple[list[str], list[list[str]]]:
    lines = [[cell.strip() for cell in line.strip("| ").split("|")] for line in text.splitlines() if line[:1] == "|"]
    return lines[0], lines[2:]


@pytest.mark.usefixtures("new_metric")
def test_a_metric_with_a_line_and_a_call_is_in_every_format(finished: Store, tmp_path: Path) -> None:
    means = {"updown": (43 / 72 + 55 / 72) / 2, "aoanet": (4 / 36 + 19 / 60) / 2}  # counted by hand
    shown = {"updown": "68.1", "aoanet": "21.4"}

    headings, rows = board(write_report(finished, tmp_path / "report"))
    assert headings["Overlap"] == "Overlap, times 100; more is better"
    assert all(shown[model] in " ".join(cells) for model, cells in rows.items()), "page"
    assert "Share of words that a reference has." in Page(tmp_path / "report" / "method.html").root.text

    terminal = printed(finished, 100)
    assert "O" in header(terminal)
    assert all(shown[model] in terminal_row(terminal, model) for model in means), "terminal"

    contents = Contents.read(finished)
    names, lines = markdown_rows(markdown(contents))
    cells = {model: line for model in means for line in lines if line[0].startswith(model)}
    assert all(cells[model][names.index("Overlap")].startswith(shown[model]) for model in means), "Markdown"

    text = latex(contents)
    assert "& Overlap &" in text
    for model in means:
        assert re.search(rf"^{display_name(model)}.* & .*\b{shown[model]}\b", text, re.MULTILINE), "LaTeX"

    table = {row["model"]: row for row in csv.DictReader(io.StringIO(as_csv(contents, matching_tables(contents))))}
    for model, mean in means.items():
        assert float(table[model]["overlap"]) == pytest.approx(100 * mean, rel=1e-6), "CSV"

    for row in json.loads(as_json(contents))[0]["rows"]:
        assert row["scores"]["Overlap"]["mean"] == pytest.approx(means[row["model"]], rel=1e-12), "JSON"
        assert row["ranks"]["Overlap"]["best"] in (1, 2), "it is tested as every metric is"


@pytest.mark.usefixtures("new_cost")
def test_a_cost_with_a_line_is_in_every_format(finished: Store, tmp_path: Path) -> None:
    shown = {"updown": "12.5\u202fW", "aoanet": "40.0\u202fW"}
    headings, rows = board(write_report(finished, tmp_path / "report"))
    assert headings["Power drawn"] == "of the whole machine"
    assert all(shown[model] in cells for model, cells in rows.items()), "page"
    page = Page(tmp_path / "report" / "costs.html").root
    assert "Energy" in page.text
    assert "Power drawn" in page.text

    terminal = printed(finished, 100)
    assert "Power" in header(terminal)
    assert all(shown[model].replace("\u202f", " ") in terminal_row(terminal, model) for model in shown), "terminal"

    contents = Contents.read(finished)
    names, lines = markdown_rows(markdown(contents))
    cells = {model: line for model in shown for line in lines if line[0].startswith(model)}
    assert all(cells[model][names.index("Power drawn")] == shown[model] for model in shown), "Markdown"

    text = latex(contents)
    assert "Power (W)" in text
    assert all(shown[model].removesuffix("\u202fW") in text for model in shown), "LaTeX"

    table = {row["model"]: row for row in csv.DictReader(io.StringIO(as_csv(contents, matching_tables(contents))))}
    assert {model: float(row["draw_W"]) for model, row in table.items()} == POWER, "CSV"
    for row in json.loads(as_json(contents))[0]["rows"]:
        assert (row["costs"]["draw"]["value"], row["costs"]["draw"]["unit"]) == (POWER[row["model"]], "W"), "JSON"


def test_without_a_line_a_cost_is_named_after_itself_and_no_column_of_the_leaderboard(
    finished: Store, tmp_path: Path
) -> None:
    headings, _ = board(write_report(finished, tmp_path / "report"))
    assert "Draw" not in headings
    assert "Draw" in Page(tmp_path / "report" / "costs.html").root.text
