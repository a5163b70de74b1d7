"""The papers' page has every preset, table and figure, and every command of it can be planned."""

import csv
import io
import re
import shlex
from itertools import pairwise

import pytest

from harness.config.load import PRESETS, load_preset
from results.published.scores import published_for, scores
from tests.documentation.parsing import check
from tests.harness.conftest import ROOT, bench_ok
from zoo import list_models, select_models

PAGE = (ROOT / "docs/papers.md").read_text(encoding="utf-8")
PAPER = [name for name in PRESETS if load_preset(name).recipe is not None]
TITLES = {
    "expansionnet_v2_arxiv": "ExpansionNet v2 (arXiv",
    "expansionnet_v2": "ExpansionNet v2 (IEEE",
    "expansionnet_v1": "ExpansionNet v1",
    "light_cgru": "Bringing back simplicity",
    "image_transformer": "Image Transformer",
}
FIGURES = {
    "expansionnet_v2_arxiv": {"3"},
    "expansionnet_v2": {"4"},
    "expansionnet_v1": {"5", "6"},
    "light_cgru": {"2"},
    "image_transformer": {"6", "7"},
}
"""Figures that are no drawings of the method."""
QUICK = ("--format", "csv", "--caption-length", "2")  # parameters do not depend on it
EXAMPLES = {
    "expansionnet_v2_arxiv": {"3", "7", "8", "9"},
    "expansionnet_v2": {"VIII", "IX"},
    "expansionnet_v1": {"6", "7"},
}
"""Tables of example captions, which have no numbers."""


def rows_in(text: str) -> list[list[str]]:
    """The cells of each row of a text's tables."""
    rows = re.findall(r"^\|(.*)\|$", text, re.MULTILINE)
    return [[cell.strip() for cell in row.split("|")] for row in rows]


def rows_of(paper: str) -> list[list[str]]:
    """The rows of a paper's tables and figures, without their head."""
    _, _, behind = PAGE.partition(f"\n**{TITLES[paper]}")
    return rows_in(behind.partition("\n\n")[2].partition("\n\n")[0])[2:]


def seen_options() -> list[list[str]]:
    """The options of the table of what models see."""
    return [shlex.split(option.strip("`")) for option, *_ in rows_in(PAGE) if option.startswith("`--")]


def options_of(paper: str) -> list[str]:
    """What the heading of a paper's tables adds to each of its commands."""
    heading = re.search(rf"^\*\*{re.escape(TITLES[paper])}.*\*\*, `(.+)`$", PAGE, re.MULTILINE)
    assert heading is not None, paper
    return shlex.split(heading[1])


def table_commands() -> list[list[str]]:
    """The `bench run` commands of the papers' tables, each with the options of its paper."""
    commands = []
    for paper in TITLES:
        for cell in (cell for row in rows_of(paper) for cell in row):
            commands += [shlex.split(span) + options_of(paper) for span in re.findall(r"`(bench run [^`]+)`", cell)]
    return commands


def preset_commands() -> list[list[str]]:
    return [shlex.split(line) for line in re.findall(r"^bench run --preset .*$", PAGE, re.MULTILINE)]


COMMANDS = [*preset_commands(), *table_commands()]


def changes_of(words: list[str]) -> tuple[str, ...]:
    return tuple(value for option, value in pairwise(words) if option == "--set")


def test_every_preset_of_a_paper_has_a_command_and_says_what_differs() -> None:
    commands = [words[words.index("--preset") + 1] for words in preset_commands()]
    stated = [(name.strip("`"), topic) for name, topic, *_ in rows_in(PAGE) if name.strip("`") in PAPER]
    assert sorted(commands) == sorted(PAPER)
    assert stated == [(name, topic) for name in commands for topic in ("captions", "decoding", "training")]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_commands_name_models_and_features_of_their_presets(words: list[str]) -> None:
    check(words)
    chosen = dict(pairwise(words))
    preset = load_preset(chosen["--preset"], changes_of(words))
    assert preset.recipe is not None
    if "--regions" not in words:
        preset.check_backbone(chosen["--backbone"])
    for word in chosen["--models"].split(","):
        name = word.removeprefix("ensemble:").rpartition(":")[0] if word.startswith("ensemble:") else word
        assert any(map(preset.recipe.covers, select_models(name)))
        if "*" not in name:
            preset.check_model(name)


def plan(words: list[str]) -> str:
    """What `bench plan` prints of a `bench run` command before its data are here."""
    [seen] = [options for options in seen_options() if f"{' '.join(options)} " in f"{' '.join(words)} "]
    kept = [word for word in words[2:] if word not in seen]
    for option in ("--images", "--data", "--image-size", "--region-count"):
        if option in kept:
            index = kept.index(option)
            del kept[index : index + 2]
    return bench_ok("plan", *kept, "--data", "coco").stdout


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_is_planned(words: list[str]) -> None:
    said = plan(words)
    chosen = dict(pairwise(words))
    preset = load_preset(chosen["--preset"], changes_of(words))
    trained = {
        name
        for word in chosen["--models"].split(",")
        if not word.startswith("ensemble:")
        for name in select_models(word)
        if preset.recipe is not None and preset.recipe.covers(name)
    }
    assert f"models {len(trained)}" in said
    for stage in preset.schedule.stages:
        if stage.objective == "sentence_graph":  # which a model without a part for it passes over
            continue
        assert f"stage {stage.name}: {stage.epochs} epoch" in said


@pytest.mark.parametrize("paper", TITLES)
def test_every_table_and_figure_has_a_row(paper: str) -> None:
    tables: set[str] = set()
    figures: set[str] = set()
    for row in rows_of(paper):
        numbers = re.findall(r"\b(?:[IVX]+|\d)\b", row[0])
        (figures if row[0].startswith("Figure") else tables).update(numbers)
    printed = {each.table for each in scores() if each.paper == paper} - {"Text"}
    assert tables == {table.removeprefix("Table ") for table in printed} | EXAMPLES.get(paper, set())
    assert figures == FIGURES[paper]


@pytest.mark.parametrize(
    ("words", "counts"),
    [
        ("bench flops --models expansionnet_v2", {"expansionnet_v2": 38.604560}),
        ("bench flops --models puret --vocab-size 9488", {"puret": 34.161768}),
        ("bench flops --models aoanet --visual-dim 2048 --vocab-size 10370", {"aoanet": 87.369858}),
        (
            "bench flops --preset cgru-paper --models cgru/paper-size --visual-dim 1024 --vocab-size 5066",
            {"cgru/paper-size": 2.460490},
        ),
    ],
)
def test_counts_of_parameters_are_the_printed_ones(words: str, counts: dict[str, float]) -> None:
    """To the printed digits; ExpansionNet v2's Table VII cuts them off, as of its own 38.6 M."""
    assert f"`{words}`" in PAGE
    rows = csv.DictReader(io.StringIO(bench_ok(*words.split()[1:], *QUICK).stdout))
    counted = {row["model"]: int(row["parameters"]) / 1e6 for row in rows}
    assert counted == counts
    for model, millions in counted.items():
        [printed] = published_for(model, metric="params_M")
        digits = 2 if printed.value < 10 else 0
        assert printed.value in {round(millions, digits), int(millions)}


def test_heads_add_as_many_parameters_as_the_text_says() -> None:
    words = "bench flops --preset cgru-paper --models 'cgru/*' --visual-dim 1024 --vocab-size 5066"
    assert f"`{words}`" in PAGE
    rows = csv.DictReader(io.StringIO(bench_ok(*shlex.split(words)[1:], *QUICK).stdout))
    counted = {row["model"]: int(row["parameters"]) for row in rows}
    for heads, gate in (("cgru/mha", "cgru/paper-size"), ("cgru/x2-mha", "cgru/x2")):
        [printed] = published_for(heads, metric="params_added_M")
        assert round((counted[heads] - counted[gate]) / 1e6, 2) == printed.value


def test_the_smallest_paper_model_is_planned_without_restval() -> None:
    model = next(model for model in list_models() if model.startswith("cgru"))
    said = bench_ok("plan", "--preset", "cgru-paper", "--models", model, "--data", "coco").stdout
    assert "20,707,350 images" in said, "50 epochs of 82,783 images with 5.0028 captions each"
