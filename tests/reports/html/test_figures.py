"""Plots as SVG files: the report's own, whole, and readable by other programs."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
import typer
from typer.testing import CliRunner

from harness.cli import export
from harness.utils.errors import BenchError
from reports.html.plots import FRAME, LETTER_WIDTH
from reports.html.rendering import asset
from reports.html.report import figures
from results.store.store import Store

SVG = "{http://www.w3.org/2000/svg}"


def exported(*arguments: str | Path) -> list[str]:
    app = typer.Typer()
    export.register(app)
    result = CliRunner().invoke(app, ["export", "figures", *map(str, arguments)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output.splitlines()


@pytest.fixture
def drawn(store: Store) -> dict[str, ElementTree.Element]:
    return {name: ElementTree.fromstring(text) for name, text in figures(store).items()}


def paths(root: ElementTree.Element, kind: str) -> list[str]:
    return [path.attrib["d"] for path in root.iter(f"{SVG}path") if path.get("class") == kind]


def test_every_plot_of_the_report_is_a_file_with_its_paths(drawn: dict[str, ElementTree.Element], report: Path) -> None:
    pages = {name: (report / f"{name}.html").read_text("utf-8") for name in ("trade-offs", "curves")}
    for page, text in pages.items():
        found = [root for name, root in drawn.items() if name.startswith(page)]
        assert len(found) == text.count('<figure class="plot')
        for root in found:
            for kind in ("line", "front", "error", "band"):
                assert all(f'class="{kind}" d="{path}"' in text for path in paths(root, kind))
    assert {"trade-offs-1-size.svg", "trade-offs-1-training-time.svg", "curves-1-validation.svg"} <= drawn.keys()
    assert paths(drawn["curves-1-validation.svg"], "line")
    assert paths(drawn["trade-offs-1-size.svg"], "error")


def test_the_legend_has_every_model_and_fits(drawn: dict[str, ElementTree.Element]) -> None:
    root = drawn["trade-offs-1-size.svg"]
    names = {group.findtext(f"{SVG}title", "").partition(":")[0] for group in root.iter(f"{SVG}g")} - {""}
    beside = [text for text in root.iter(f"{SVG}text") if float(text.get("x", 0)) > FRAME.width]
    assert {(text.text or "").removesuffix(" (still learning)") for text in beside} == names
    _, _, width, height = (float(number) for number in root.attrib["viewBox"].split())
    for text in beside:
        assert float(text.attrib["x"]) + LETTER_WIDTH * len(text.text or "") <= width
        assert float(text.attrib["y"]) < height - 16


def test_styles_need_nothing_from_outside() -> None:
    style = asset("figure.css")
    assert "var(" not in style
    assert "url(" not in style
    light = asset("style.css").partition("@media")[0]
    assert re.findall(r"\.c(\d) { color: (#\w+); }", style) == re.findall(r"--c(\d): (#\w+);", light)


def test_the_command_writes_them_and_leaves_other_files(store: Store, tmp_path: Path) -> None:
    other = tmp_path / "figures" / "mine.svg"
    other.parent.mkdir()
    other.write_text("mine")
    said = exported("--db", store.name, "--out", other.parent)
    assert said == [str(other.parent / name) for name in figures(store)]
    assert other.read_text() == "mine"
    assert len(list(other.parent.iterdir())) == len(said) + 1


def test_a_store_without_trainings_says_what_to_type(tmp_path: Path) -> None:
    with Store(tmp_path / "bench.sqlite"):
        pass
    with pytest.raises(BenchError, match="nothing to draw") as refused:
        exported("--workspace", tmp_path, "--out", tmp_path / "figures")
    assert "bench run" in (refused.value.hint or "")
    assert not (tmp_path / "figures").exists()
