"""The papers' page has every preset and printed table, and every preset can be planned at its paper's sizes."""

import re
import shlex
from itertools import pairwise, takewhile

import pytest

from harness.config.load import PRESETS, load_preset
from results.published.scores import scores
from tests.harness.conftest import ROOT, bench_ok
from zoo import list_models, select_models

PAGE = (ROOT / "docs/papers.md").read_text(encoding="utf-8")
PAPER = [name for name in PRESETS if load_preset(name).recipe is not None]


def rows_behind(heading: str) -> list[list[str]]:
    """The cells of the table behind a line of the page that begins so, without its head."""
    behind = PAGE.partition(f"\n{heading}")[2].partition("|---|")[2].splitlines()[1:]
    lines = takewhile(lambda line: line.startswith("|"), behind)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_preset_of_a_paper_has_a_command_and_says_what_differs() -> None:
    commands = re.findall(r"^bench run --preset (\S+)", PAGE, re.MULTILINE)
    stated = [(name.strip("`"), topic) for name, topic, *_ in rows_behind("A generated unknown word")]
    assert sorted(commands) == sorted(PAPER)
    assert stated == [(name, topic) for name in commands for topic in ("captions", "decoding", "training")]


def test_commands_of_tables_name_models_of_their_presets() -> None:
    commands = [shlex.split(span) for span in re.findall(r"`(bench run [^`]+)`", PAGE)]
    assert len(commands) > 10
    for words in commands:
        options = list(pairwise(words))
        chosen = dict(options)
        preset = load_preset(chosen["--preset"], tuple(value for option, value in options if option == "--set"))
        assert preset.recipe is not None
        for word in chosen["--models"].split(","):
            name = word.removeprefix("ensemble:").rpartition(":")[0] if word.startswith("ensemble:") else word
            assert any(map(preset.recipe.covers, select_models(name)))
            if "*" not in name:
                preset.check_model(name)


@pytest.mark.parametrize(
    ("paper", "title"),
    [
        ("expansionnet_v2_arxiv", "ExpansionNet v2 (arXiv"),
        ("expansionnet_v2", "ExpansionNet v2 (IEEE"),
        ("expansionnet_v1", "ExpansionNet v1"),
        ("light_cgru", "Bringing back simplicity"),
        ("image_transformer", "Image Transformer"),
    ],
)
def test_every_printed_table_has_a_command(paper: str, title: str) -> None:
    entries = rows_behind(f"**{title}")
    stated = {name for where, *_ in entries for name in re.findall(r"\b(?:[IVX]+|\d)\b", where)}
    printed = {each.table for each in scores() if each.paper == paper} - {"Text"}
    assert {table.removeprefix("Table ") for table in printed} <= stated
    assert all(re.search("`bench |as Table", command) for *_, command in entries)


def plan(name: str) -> str:
    """What `bench plan` says of the first model of a preset that it can build without a backbone's weights."""
    recipe = load_preset(name).recipe
    assert recipe is not None
    model = next(model for model in list_models() if recipe.covers(model))
    return bench_ok("plan", "--preset", name, "--models", model, "--data", "coco").stdout


def test_the_smallest_paper_model_is_planned_without_restval() -> None:
    said = plan("cgru-paper")
    assert "20,707,350 images" in said, "50 epochs of 82,783 images with 5.0028 captions each"
    assert "device-hours" in said


@pytest.mark.campaign
@pytest.mark.parametrize("name", PAPER)
def test_every_paper_preset_is_planned_at_its_sizes(name: str) -> None:
    said = plan(name)
    assert "device-hours" in said
    assert "disk: about" in said
