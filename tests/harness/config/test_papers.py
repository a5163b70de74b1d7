"""The page of the paper track is what the presets say, and every preset can be planned at its paper's sizes."""

from __future__ import annotations

import re
import shlex
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from harness.config.load import list_presets, load_preset
from harness.config.papers import PAGE, SOURCE, page
from harness.utils.errors import BenchError
from results.published.scores import scores
from tests.harness.conftest import ROOT, bench
from zoo import list_models, select_models

DOCS = ROOT / "docs"
PAPER = [name for name in list_presets() if load_preset(name).recipe is not None]


def test_the_page_is_current() -> None:
    assert (DOCS / PAGE).read_text(encoding="utf-8") == page(DOCS), "python -m harness.config.papers docs"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [("aoanet-paper:", "other-paper:", "differ in aoanet-paper, other-paper"), ("  decoding:", "  search:", "topics")],
)
def test_a_preset_or_topic_without_an_entry_is_named(tmp_path: Path, old: str, new: str, said: str) -> None:
    shutil.copy(DOCS / SOURCE, tmp_path)
    text = (tmp_path / SOURCE).read_text(encoding="utf-8")
    (tmp_path / SOURCE).write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(BenchError, match=said):
        page(tmp_path)


def test_commands_of_tables_name_models_of_their_presets() -> None:
    commands = [shlex.split(span) for span in re.findall(r"`(bench run [^`]+)`", page(DOCS))]
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
    tables = yaml.safe_load((DOCS / SOURCE).read_text(encoding="utf-8"))["tables"]
    [entries] = (each for name, each in tables.items() if name.startswith(title))
    stated = {name for each in entries for name in re.findall(r"\b(?:[IVX]+|\d)\b", each["where"])}
    printed = {each.table for each in scores() if each.paper == paper} - {"Text"}
    assert {table.removeprefix("Table ") for table in printed} <= stated
    assert all(re.search("`bench |as Table", each["how"]) for each in entries)


def plan(name: str) -> str:
    """What `bench plan` says of the first model of a preset that it can build without a backbone's weights."""
    recipe = load_preset(name).recipe
    assert recipe is not None
    model = next(model for model in list_models() if recipe.covers(model))
    done = bench("plan", "--preset", name, "--models", model, "--data", "coco")
    assert done.exit_code == 0, done.output
    return done.stdout


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
