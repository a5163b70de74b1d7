"""Plots: geometry, conditions of curves, and the same plots as SVG files."""

import itertools
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from harness.utils.errors import BenchError
from reports.html.plots import (
    FRAME,
    LETTER_WIDTH,
    LINE_HEIGHT,
    MAX_LABELS,
    Plot,
    Series,
    legend,
    line_plot,
    trade_off_plot,
)
from reports.html.rendering import asset
from reports.html.report import figures
from reports.html.trade_offs import curve_sections
from results.records import EpochRecord
from results.store.store import Store
from tests.harness.conftest import bench_or_raise
from tests.reports.examples import contents, run

SVG = "{http://www.w3.org/2000/svg}"


def trade_off(*points: tuple[float, float]) -> Plot:
    series = [Series(f"model_{number}", number % 8, (point,)) for number, point in enumerate(points)]
    plot = trade_off_plot("t", "x", "y", series)
    assert plot is not None
    return plot


@pytest.mark.parametrize("points", [[(1, 5), (1, 5)], [(0, 0), (3, 0)], [(1e-5, 1), (9e4, 99)], [(2, 1), (29, 98.3)]])
def test_every_point_is_inside_whatever_the_values(points: list[tuple[float, float]]) -> None:
    plot = trade_off(*points)
    assert all(0 <= x <= FRAME.width and 0 <= y <= FRAME.height for drawn in plot.drawn for x, y in drawn.points)
    ticks = [float(text) for _, text in plot.x_ticks]
    assert len(ticks) >= 2
    assert ticks == sorted(set(ticks))


def test_bounds_are_drawn_and_stay_inside() -> None:
    points = [Series("a", 0, ((1.0, 50.0),), "", (0.5, 1.5), (45.0, 55.0)), Series("b", 1, ((30.0, 90.0),))]
    plot = trade_off_plot("t", "x", "y", points)
    assert plot is not None
    assert [drawn.uncertainty.count("M") for drawn in plot.drawn] == [2, 0]
    assert float(plot.y_ticks[0][1]) <= 45


def test_the_front_joins_only_points_that_no_other_beats() -> None:
    plot = trade_off((1, 10), (2, 5), (3, 20), (4, 19))
    assert [f"{x:g} {y:g}" in plot.front for x, y in (drawn.points[0] for drawn in plot.drawn)] == [
        True, False, True, False,
    ]  # fmt: skip
    assert plot.best == {0, 2}
    assert trade_off_plot("t", "x", "y", [Series("only", 0, ((1, 2),))]) is None


def test_labels_of_neighbours_do_not_overlap() -> None:
    boxes = []
    for drawn in trade_off((1, 50), (1.01, 50.1), (1.02, 49.9), (3, 90), (0.5, 10)).drawn:
        assert drawn.label
        width = LETTER_WIDTH * len(drawn.series.name)
        left = drawn.label.x if drawn.label.anchor == "start" else drawn.label.x - width
        boxes.append((left, drawn.label.y - 10, left + width, drawn.label.y))
    for one, other in itertools.combinations(boxes, 2):
        assert one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]


def test_of_many_points_those_of_the_front_alone_are_named_and_joined_to_their_names() -> None:
    front = [(1 + number / 50, 50 + number) for number in range(12)]
    plot = trade_off(*front, *((2 + number / 50, 45 + number / 2) for number in range(10)))
    assert len(plot.drawn) > MAX_LABELS
    labels = [drawn.label for drawn in plot.drawn]
    assert [label is not None for label in labels] == [True] * 12 + [False] * 10
    assert any(label.leader for label in labels if label), "those that are pushed away have a leader"


def test_lines_are_named_at_their_ends_one_below_the_other() -> None:
    series = [Series(f"m{number}", number, ((1, 0), (2, 5 + number / 1000))) for number in range(30)]
    plot = line_plot("t", "x", "y", [*series, Series("empty", 1, ())], x_range=(1, 2), y_from=0)
    assert plot is not None
    heights = sorted(drawn.label.y for drawn in plot.drawn if drawn.label)
    assert len(heights) == 30, "a line without points is left out"
    assert all(high - low >= LINE_HEIGHT - 0.2 for low, high in itertools.pairwise(heights))
    assert heights[-1] <= plot.frame.height
    assert all(drawn.label and drawn.label.x > plot.frame.right for drawn in plot.drawn)
    assert line_plot("t", "x", "y", [Series("empty", 1, ())], x_range=(1, 2), y_from=0) is None
    single = line_plot("t", "x", "y", [Series("one", 0, ((1, 3),))], x_range=(1, 1), y_from=3)
    assert single is not None
    assert all(text == str(int(text)) for _, text in single.x_ticks), "epochs are whole"


def test_legends_are_in_the_order_of_the_score_then_natural() -> None:
    names = ["m10", "m2", "best", "second", "M3"]
    entries = legend(names, ["best", "second", "absent"], dict.fromkeys(names, 0), {"m2"})
    assert [each.name for each in entries] == ["best", "second", "m2", "M3", "m10"]
    assert [each.open_end for each in entries] == [False, False, True, False, False]


def test_curves_of_other_conditions_never_share_a_plot() -> None:
    common = replace(run(), epochs=(EpochRecord(0, "s", "xe", 1, 50, 3e-4, 0.5, 0.9, 10.4, 78.2),), status="failed")
    runs = {
        key: replace(common, key=key, seed=seed, signature={"beam": "3", "schedule": schedule})
        for key, seed, schedule in (("a", 1, "xe#1"), ("b", 1, "scst#2"), ("c", 2, "xe#1"))
    }
    sections = curve_sections(contents(runs=runs), {"m2": 0})
    assert [section.details for section in sections] == ["schedule: xe#1", "schedule: scst#2"]
    tables = [section.tables[""] for section in sections]
    assert [[line.runs[0][1] for line in table.lines] for table in tables] == [["a", "c"], ["b"]]


@pytest.fixture
def drawn(store: Store) -> dict[str, ElementTree.Element]:
    return {name: ElementTree.fromstring(text) for name, text in figures(store).items()}


def paths(root: ElementTree.Element, kind: str) -> list[str]:
    return [path.attrib["d"] for path in root.iter(f"{SVG}path") if path.get("class") == kind]


def test_every_plot_of_the_report_is_a_file_with_its_paths(drawn: dict[str, ElementTree.Element], report: Path) -> None:
    for page in ("trade-offs", "curves"):
        text = (report / f"{page}.html").read_text("utf-8")
        found = [root for name, root in drawn.items() if name.startswith(page)]
        assert len(found) == text.count('<figure class="plot')
        for root, kind in itertools.product(found, ("line", "front", "error", "band")):
            assert all(f'class="{kind}" d="{path}"' in text for path in paths(root, kind))
    assert {"trade-offs-1-size.svg", "trade-offs-1-training-time.svg"} <= drawn.keys()
    assert paths(drawn["curves-1-validation.svg"], "line")
    assert paths(drawn["trade-offs-1-size.svg"], "error")


def test_a_file_s_legend_has_every_model_and_fits_and_its_style_is_its_own(
    drawn: dict[str, ElementTree.Element],
) -> None:
    root = drawn["trade-offs-1-size.svg"]
    names = {group.findtext(f"{SVG}title", "").partition(":")[0] for group in root.iter(f"{SVG}g")} - {""}
    beside = [text for text in root.iter(f"{SVG}text") if float(text.get("x", 0)) > FRAME.width]
    assert {(text.text or "").removesuffix(" (still learning)") for text in beside} == names
    _, _, width, height = (float(number) for number in root.attrib["viewBox"].split())
    for text in beside:
        assert float(text.attrib["x"]) + LETTER_WIDTH * len(text.text or "") <= width
        assert float(text.attrib["y"]) < height - 16
    style, light = asset("figure.css"), asset("style.css").partition("@media")[0]
    assert "var(" not in style
    assert "url(" not in style
    assert re.findall(r"\.c(\d) { color: (#\w+); }", style) == re.findall(r"--c(\d): (#\w+);", light)


def test_the_command_writes_figures_and_leaves_other_files(store: Store, tmp_path: Path) -> None:
    other = tmp_path / "figures" / "mine.svg"
    other.parent.mkdir()
    other.write_text("mine")
    said = bench_or_raise("export", "figures", "--db", store.name, "--out", other.parent)[1].splitlines()
    assert said == [str(other.parent / name) for name in figures(store)]
    assert other.read_text() == "mine"
    assert len(list(other.parent.glob("*.svg"))) == len(said) + 1
    with Store(tmp_path / "empty.sqlite"):
        pass
    with pytest.raises(BenchError, match="nothing to draw"):
        bench_or_raise("export", "figures", "--db", tmp_path / "empty.sqlite", "--out", tmp_path / "none")
    assert not (tmp_path / "none").exists()
