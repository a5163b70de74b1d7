"""The page of Flickr8k shows the numbers that the databases in the repository hold."""

import json
import re
import shlex
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.documentation.pages import (
    ROOT,
    exported_tables,
    groups_of,
    missing_numbers,
    numbers_in,
    points,
    tables_in,
    text_of,
)
from tests.harness.conftest import bench_ok

DATABASE, REWARDS = (ROOT / "baselines" / f"{name}.sqlite" for name in ("flickr8k", "flickr8k_rewards"))
PAGE = "docs/flickr8k.md"
SCORES = "CIDEr-D,95 % interval,Rank,BLEU-4,METEOR,ROUGE-L"
COSTS = "CIDEr-D,Parameters,Computation per caption,Training time"
FIGURES = {"trade-off-computation.svg": "flickr8k-computation.svg", "learning-curves.svg": "flickr8k-curves.svg"}


@pytest.mark.parametrize(("database", "columns"), [(DATABASE, SCORES), (DATABASE, COSTS), (REWARDS, SCORES)])
def test_its_tables_are_those_of_the_database(database: Path, columns: str) -> None:
    assert exported_tables(database, columns)[0] in tables_in(text_of(PAGE))


def test_its_numbers_of_pairs_are_those_of_the_database() -> None:
    comparisons = groups_of("flickr8k")[0]["comparisons"]
    pairs = comparisons["pairs"]
    better = [pair for pair in pairs if pair["verdict"] == "better"]
    differences = [pair["difference"] for pair in better]
    half_widths = [(pair["high"] - pair["low"]) / 2 for pair in pairs if pair["verdict"] == "unknown"]
    shown = points(min(differences), max(differences), min(half_widths), max(half_widths))
    p, margin = f"{max(pair['p'] for pair in better):.4f}", f"{100 * comparisons['margin']:.2f}"
    assert not missing_numbers(PAGE, shown | {p, margin, len(pairs), len(half_widths)})


def test_its_numbers_of_further_seeds_are_those_of_the_command() -> None:
    printed = bench_ok("plan", "--detect", "1", "--data", "flickr8k", "--db", str(DATABASE)).stdout
    rows = [numbers for line in printed.splitlines() if len(numbers := numbers_in(line)) == 3]
    smallest = {seeds: f"{float(difference):.1f}" for seeds, difference, _ in rows}
    assert not missing_numbers(PAGE, {smallest["5"], smallest["10"]})
    rows = [numbers for table in tables_in(text_of("docs/statistics.md")) for _, numbers in table]
    assert [smallest[seeds] for seeds in ("2", "3", "5")] in rows


def test_its_numbers_of_rewards_are_those_of_the_database() -> None:
    group, cross_entropy = groups_of("flickr8k_rewards")
    pairs = group["comparisons"]["pairs"]
    better = [pair for pair in pairs if pair["verdict"] == "better"]
    by_best = [pair for pair in better if pair["first"] == 0]
    first = next(pair for pair in pairs if (pair["first"], pair["second"]) == (0, 1))
    differences = [pair["difference"] for pair in better]
    before = {row["model"]: row["scores"] for row in cross_entropy["rows"]}
    cider, bleu, meteor = (
        [row["scores"][metric]["mean"] - before[row["model"]][metric]["mean"] for row in group["rows"]]
        for metric in ("CIDEr-D", "BLEU-4", "METEOR")
    )
    shown = {
        *points(min(differences), max(differences), min(pair["difference"] for pair in by_best)),
        *points(first["difference"], first["low"], first["high"]),
        *points(min(cider), max(cider), min(bleu), max(bleu), max(map(abs, meteor))),
        *(f"{max(pair['p'] for pair in those):.4f}" for those in (better, by_best)),
        *(f"{value:.2f}" for value in (first["p"], 100 * group["comparisons"]["margin"])),
    }
    assert not missing_numbers(PAGE, shown | {len(pairs), len(better)})
    assert not missing_numbers("README.md", points(min(cider), max(cider)))
    [puret] = [
        pair for pair in cross_entropy["comparisons"]["pairs"] if models_of(pair, cross_entropy) == {"puret", "cgru"}
    ]
    assert not missing_numbers(PAGE, {f"{puret['p']:.2f}", *points(puret["difference"])})


def models_of(pair: dict[str, Any], group: dict[str, Any]) -> frozenset[str]:
    return frozenset(group["rows"][pair[end]]["model"] for end in ("first", "second"))


def test_seven_seeds_confirm_all_significant_differences_but_one() -> None:
    five, (_, seven) = groups_of("flickr8k")[0], groups_of("flickr8k_rewards")
    of_five, of_seven = (
        {models_of(pair, group) for pair in group["comparisons"]["pairs"] if pair["verdict"] == "better"}
        for group in (five, seven)
    )
    assert of_seven < of_five
    assert of_five - of_seven == {frozenset({"puret", "cgru"})}
    assert not missing_numbers(PAGE, {len(of_five), len(of_seven)})


def test_its_numbers_of_the_search_are_those_of_the_study() -> None:
    studies = json.loads((ROOT / "tests" / "fixtures" / "flickr8k_search.json").read_text(encoding="utf-8"))
    ahead = [preset["score"] - max(trial["score"] for trial in others) for preset, *others in studies.values()]
    assert not missing_numbers(PAGE, points(min(ahead), max(ahead)))


def stored(path: Path, columns: str, by: str) -> list[tuple[Any, ...]]:
    """Of the CIDEr-D on test of the first table's runs that were trained and see the image."""
    query = f"""SELECT {columns} FROM scores JOIN runs ON runs.id = run_id WHERE metric = 'CIDEr-D' AND split = 'test'
        AND domain = 'overall' AND json_extract(signature, '$.schedule') = ? AND model <> 'blind' GROUP BY {by}"""  # noqa: S608 (both are literals)
    with sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True) as connection:
        return connection.execute(query, (groups_of(path.stem)[0]["signature"]["schedule"],)).fetchall()


def test_seeds_differ_as_the_page_of_coco_says() -> None:
    spans = [span for (span,) in stored(DATABASE, "max(value) - min(value)", "model")]
    assert len(spans) == 10
    assert not missing_numbers("docs/coco.md", points(max(spans)))


def test_the_table_and_the_csv_of_a_paper_are_those_of_the_commands() -> None:
    page = text_of("docs/notebook.md").partition("## For papers")[2]
    commands = [
        " ".join(command.split())
        for command in re.findall("^bench export leaderboard [^`]*", page.replace("\\\n", ""), re.MULTILINE)
    ]
    latex, table = (bench_ok(*shlex.split(command)[1:]).stdout for command in commands)
    assert latex.partition("% Not comparable")[0] in page
    for line in table.splitlines():
        assert any(line.startswith(shown.removesuffix(", ...")) for shown in page.splitlines() if len(shown) > 40), line


def test_rewards_end_alike_on_two_machines() -> None:
    (low, high, cpu), *gpu = stored(REWARDS, "min(seed), max(seed), avg(value)", "environment LIKE '%H200%'")
    assert (low, high, *gpu[0][:2]) == (0, 2, 3, 6)
    assert not missing_numbers(PAGE, points(abs(cpu - gpu[0][2])))


def test_its_figures_are_those_of_the_database(tmp_path: Path) -> None:
    bench_ok("export", "figures", "--db", str(DATABASE), "--format", "svg", "--out", str(tmp_path))
    for file, shown in FIGURES.items():  # paths of letters differ between releases of matplotlib, words do not
        drawn, stored = (
            re.findall("<!-- (.*) -->", path.read_text(encoding="utf-8"))
            for path in (tmp_path / file, ROOT / "docs" / "images" / shown)
        )
        assert drawn == stored
