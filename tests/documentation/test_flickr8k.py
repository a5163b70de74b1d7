"""The page of Flickr8k shows what the database in the repository holds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.documentation.pages import ROOT, text_of
from tests.harness.conftest import bench

DATABASE = ROOT / "baselines" / "flickr8k.sqlite"
FIGURES = {
    "trade-offs-1-computation.svg": "flickr8k-computation.svg",
    "trade-offs-1-training-time.svg": "flickr8k-training-time.svg",
    "curves-1-validation.svg": "flickr8k-curves.svg",
}


@pytest.mark.parametrize(
    "columns",
    [
        "CIDEr-D,95 % interval,Place,BLEU-4,METEOR,ROUGE-L",
        "CIDEr-D,Parameters,Computation per caption,Latency,Training time",
    ],
)
def test_its_tables_are_those_of_the_database(columns: str) -> None:
    """Made by the same command, and put into the page by hand."""
    exported = bench("export", "leaderboard", "--db", str(DATABASE), "--columns", columns)
    assert exported.exit_code == 0, exported.output
    table, *_ = re.findall(r"(?:^\|.*\n)+", exported.output, re.MULTILINE)
    (signature,) = re.findall(r"^`(CIDEr-D\|.*)`$", exported.output, re.MULTILINE)
    page = text_of("docs/flickr8k.md")
    assert table in page
    assert signature in page


def test_its_figures_are_those_of_the_database(tmp_path: Path) -> None:
    made = bench("export", "figures", "--db", str(DATABASE), "--out", str(tmp_path))
    assert made.exit_code == 0, made.output
    for file, shown in FIGURES.items():
        assert (tmp_path / file).read_text(encoding="utf-8") == (ROOT / "docs" / "images" / shown).read_text("utf-8")


def test_the_database_holds_no_captions_of_the_data_set() -> None:
    content = DATABASE.read_bytes()
    for words in (b"grassy field", b"blue shirt", b"is riding"):
        assert words not in content
