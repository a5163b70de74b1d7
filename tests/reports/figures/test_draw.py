"""Figures of papers: what they show, what they leave out, and that nothing overlaps."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.utils.errors import BenchError
from reports.tables.contents import Contents
from results.runs.selection import keep_models
from results.store.store import Store
from tests.documentation.pages import ROOT
from tests.harness.conftest import bench_ok, bench_or_raise

pytest.importorskip("matplotlib")

from matplotlib.figure import Figure
from matplotlib.text import Text

from reports.figures.draw import Figures, as_bytes, draw_figures

SCENES = ROOT / "baselines" / "scenes.sqlite"
FLICKR8K = ROOT / "baselines" / "flickr8k.sqlite"


def contents_of(path: Path) -> Contents:
    with Store(str(path), read_only=True) as store:
        return Contents.read(store)


@pytest.fixture(scope="module")
def flickr8k() -> Contents:
    return contents_of(FLICKR8K)


@pytest.fixture(scope="module")
def drawn(flickr8k: Contents) -> Figures:
    return draw_figures(flickr8k, flickr8k.groups[0], {"updown": "Ours"})


def words(figure: Figure) -> list[Text]:
    return [text for text in figure.findobj(Text) if isinstance(text, Text) and text.get_text() and text.get_visible()]


def test_the_leaderboard_has_scores_intervals_and_ranks(drawn: Figures, flickr8k: Contents) -> None:
    group = flickr8k.groups[0]
    axes = drawn.drawn["leaderboard"].axes[0]
    shown = [text.get_text() for text in axes.get_yticklabels()]
    assert len(shown) == len(group.rows) + len(group.references)
    assert (shown[0], "Ours" in shown, "updown" in shown) == ("Transformer (base)", True, False)
    first = group.rows[0].scores["CIDEr-D"]
    assert first.mean is not None
    drawn_x = [float(x) for line in axes.lines for x in line.get_xdata()]  # type: ignore[union-attr]
    for value in (first.mean, first.low, first.high):
        assert value is not None
        assert any(abs(x - 100 * value) < 1e-9 for x in drawn_x)
    ranks = [text.get_text() for text in axes.child_axes[0].get_yticklabels()]
    assert (ranks[0], ranks[-1]) == ("1–8", "")


def test_the_trade_off_leaves_out_baselines_and_says_so(drawn: Figures) -> None:
    texts = [text.get_text() for text in words(drawn.drawn["trade-off-computation"])]
    assert "Blind" not in texts
    assert "Ours" in texts
    assert any("Blind" in remark for remark in drawn.remarks)


def test_a_cost_that_all_models_share_is_not_drawn(drawn: Figures) -> None:
    assert "trade-off-size" not in drawn.drawn
    assert any(remark.startswith("trade-off-size") for remark in drawn.remarks)


def test_pairs_are_those_of_the_comparisons(drawn: Figures, flickr8k: Contents) -> None:
    comparisons = flickr8k.groups[0].comparisons
    assert comparisons is not None
    better = sum(pair.verdict == "better" for pair in comparisons.pairs)
    texts = [text.get_text() for text in words(drawn.drawn["pairs"])]
    assert (texts.count("+"), texts.count("−")) == (better, better)


@pytest.mark.parametrize("path", [FLICKR8K, SCENES])
def test_no_name_covers_another(path: Path) -> None:
    contents = contents_of(path)
    for name, figure in draw_figures(contents, contents.groups[0], {}).drawn.items():
        figure.draw_without_rendering()
        renderer: Any = figure.canvas.get_renderer()  # type: ignore[attr-defined] # which Agg's canvas has
        names = [text for text in words(figure) if re.search("[A-Za-z]", text.get_text())]  # ticks are matplotlib's
        boxes = [(text.get_text(), text.get_window_extent(renderer)) for text in names]
        for number, (one, box) in enumerate(boxes):
            width, height = figure.bbox.width, figure.bbox.height
            assert box.x0 > -2 and box.x1 < width + 2 and box.y0 > -2 and box.y1 < height + 2, (name, one)  # noqa: PT018
            for other, other_box in boxes[number + 1 :]:
                overlap = min(box.x1, other_box.x1) - max(box.x0, other_box.x0)
                above = min(box.y1, other_box.y1) - max(box.y0, other_box.y0)
                assert overlap <= 2 or above <= 3, (name, one, other)


def test_letters_are_large_enough_at_the_width_of_a_column(drawn: Figures) -> None:
    for name, figure in drawn.drawn.items():
        assert figure.get_figwidth() == 3.3
        assert min(text.get_fontsize() for text in words(figure)) >= 5, name


def test_models_are_told_apart_by_shape_too(drawn: Figures) -> None:
    lines = [line for line in drawn.drawn["learning-curves"].axes[0].lines if line.get_marker() != "None"]
    assert len({line.get_marker() for line in lines}) == len({line.get_color() for line in lines}) == len(lines) == 7


def test_a_pdf_embeds_truetype_and_files_are_the_same_again(drawn: Figures) -> None:
    figure = drawn.drawn["pairs"]
    pdf = as_bytes(figure, "pdf")
    assert b"/FontFile2" in pdf
    assert b"/Type3" not in pdf
    assert pdf == as_bytes(figure, "pdf")
    assert as_bytes(figure, "svg") == as_bytes(figure, "svg")
    assert as_bytes(figure, "png").startswith(b"\x89PNG")


def test_chosen_models_alone_are_drawn(flickr8k: Contents) -> None:
    group = keep_models(flickr8k.groups[0], {"transformer_base", "cgru"})
    texts = {text.get_text() for text in words(draw_figures(flickr8k, group, {}).drawn["pairs"])}
    assert {"Transformer (base)", "cGRU"} <= texts
    assert "AoANet" not in texts


def test_the_command_writes_figures_and_leaves_other_files(store: Store, tmp_path: Path) -> None:
    other = tmp_path / "figures" / "mine.svg"
    other.parent.mkdir()
    other.write_text("mine")
    result = bench_ok("export", "figures", "--db", store.name, "--format", "svg", "--out", other.parent)
    said = [Path(line).name for line in result.stdout.splitlines()]
    assert {"leaderboard.svg", "trade-off-size.svg", "learning-curves.svg"} <= set(said)
    assert sorted(path.name for path in other.parent.glob("*.svg")) == sorted([*said, "mine.svg"])
    assert other.read_text() == "mine"
    assert re.search("^pairs: ", result.stderr, re.MULTILINE) or "pairs.svg" in said


def test_a_store_without_runs_and_all_tables_at_once_are_refused(store: Store, tmp_path: Path) -> None:
    with Store(tmp_path / "empty.sqlite"):
        pass
    for words_ in (("--db", tmp_path / "empty.sqlite"), ("--db", store.name, "--table", "all")):
        with pytest.raises(BenchError) as caught:
            bench_or_raise("export", "figures", *words_, "--out", tmp_path / "none")
        assert caught.value.hint
    assert not (tmp_path / "none").exists()


def test_without_matplotlib_the_extra_is_named(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(BenchError) as caught:
        bench_or_raise("export", "figures", "--db", store.name, "--out", tmp_path / "none")
    assert "figures" in (caught.value.hint or "")
