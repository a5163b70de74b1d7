"""The page of Flickr8k shows what the database in the repository holds."""

import json
import re
from pathlib import Path

import pytest

from tests.documentation.pages import ROOT, text_of
from tests.harness.conftest import bench, bench_ok

DATABASE = ROOT / "baselines" / "flickr8k.sqlite"
CROSS_ENTROPY, AGAIN, REWARDS = range(3)
FIGURES = {
    "trade-offs-1-computation.svg": "flickr8k-computation.svg",
    "trade-offs-1-training-time.svg": "flickr8k-training-time.svg",
    "curves-1-validation.svg": "flickr8k-curves.svg",
    "curves-3-validation.svg": "flickr8k-rewards.svg",
}


def leaderboards(columns: str) -> list[str]:
    """The first table of each group of comparable runs."""
    exported = bench_ok("export", "leaderboard", "--db", str(DATABASE), "--columns", columns)
    groups = re.split(r"^## ", exported.output, flags=re.MULTILINE)[1:]
    return [re.findall(r"(?:^\|.*\n)+", group, re.MULTILINE)[0] for group in groups]


@pytest.mark.parametrize(
    ("group", "columns"),
    [
        (CROSS_ENTROPY, "CIDEr-D,95 % interval,Place,BLEU-4,METEOR,ROUGE-L"),
        (CROSS_ENTROPY, "CIDEr-D,Parameters,Computation per caption,Latency,Training time"),
        (REWARDS, "CIDEr-D,95 % interval,Place,BLEU-4,METEOR,Computation per caption,Training time"),
    ],
)
def test_its_tables_are_those_of_the_database(group: int, columns: str) -> None:
    """Made by the same command, and put into the page by hand."""
    assert leaderboards(columns)[group] in text_of("docs/flickr8k.md")


def test_its_means_before_and_after_rewards_are_those_of_the_database() -> None:
    groups = [
        {name.split()[0]: mean.strip() for _, name, mean, _ in (line.split("|") for line in table.splitlines()[2:])}
        for table in leaderboards("CIDEr-D")
    ]
    models = [model for model in groups[REWARDS] if model not in ("human", "retrieval", "majority")]
    assert len(models) == 5
    for model in models:
        before, again, after = (groups[group][model] for group in (CROSS_ENTROPY, AGAIN, REWARDS))
        assert f"| {model} | {before} | {again} | {after} |" in text_of("docs/flickr8k.md")


def test_its_control_is_that_of_the_database() -> None:
    exported = bench_ok("export", "leaderboard", "--db", str(DATABASE), "--format", "json")
    controls = json.loads(exported.output)[CROSS_ENTROPY]["controls"]
    seeds, scaled = (
        "{difference:+.1f} ({low:.1f} to {high:.1f})".format_map(pair).replace("-", "−") for pair in controls["pairs"]
    )
    page = " ".join(text_of("docs/flickr8k.md").split())
    assert seeds.replace(" (", " points (95 %: ") in page
    assert scaled in page
    assert f"of the table is {controls['median']:.1f} points" in page


def test_its_signature_is_that_of_the_database() -> None:
    exported = bench("export", "leaderboard", "--db", str(DATABASE)).output
    first, *_ = re.findall(r"^`(CIDEr-D\|.*)`$", exported, re.MULTILINE)
    assert first in text_of("docs/flickr8k.md")


def test_its_figures_are_those_of_the_database(tmp_path: Path) -> None:
    bench_ok("export", "figures", "--db", str(DATABASE), "--out", str(tmp_path))
    for file, shown in FIGURES.items():
        assert (tmp_path / file).read_text(encoding="utf-8") == (ROOT / "docs" / "images" / shown).read_text("utf-8")


def test_the_database_holds_no_captions_of_the_data_set() -> None:
    content = DATABASE.read_bytes()
    for words in (b"grassy field", b"blue shirt", b"is riding"):
        assert words not in content
