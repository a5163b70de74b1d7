"""The page of Flickr8k shows what the database in the repository holds."""

import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.documentation.pages import ROOT, groups_of, tables_of, text_of
from tests.harness.conftest import bench_ok

DATABASE, REWARDS = (ROOT / "baselines" / f"{name}.sqlite" for name in ("flickr8k", "flickr8k_rewards"))
PAGE, README = (" ".join(text_of(page).split()) for page in ("docs/flickr8k.md", "README.md"))
FIGURES = {"trade-offs-1-computation.svg": "flickr8k-computation.svg", "curves-1-validation.svg": "flickr8k-curves.svg"}


@pytest.mark.parametrize(
    "columns",
    ["CIDEr-D,95 % interval,Place,BLEU-4,METEOR,ROUGE-L", "CIDEr-D,Parameters,Computation per caption,Training time"],
)
def test_its_tables_are_those_of_the_database(columns: str) -> None:
    """Made by the same command, and put into the page by hand."""
    assert tables_of(DATABASE, columns)[0] in text_of("docs/flickr8k.md")


def test_what_it_says_of_pairs() -> None:
    table = groups_of("flickr8k")[0]
    rows, pairs = table["rows"], table["comparisons"]["pairs"]
    told = {(rows[pair["first"]]["model"], rows[pair["second"]]["model"]): pair for pair in pairs}
    told = {names: pair for names, pair in told.items() if pair["verdict"] == "better"}
    by_all = [told.pop(names) for names in [*told] if names[1] == "cgru"]
    assert len(by_all) == 9
    assert list(told) == [("transformer_base", "puret")]
    assert {pair["verdict"] for pair in pairs} == {"better", "unknown"}
    low, high = (f"{100 * of(pair['difference'] for pair in by_all):.1f}" for of in (min, max))
    widths = [50 * (pair["high"] - pair["low"]) for pair in pairs if pair["verdict"] == "unknown"]
    most = max(pair["p"] for pair in (*by_all, *told.values()))
    puret = f"{100 * told['transformer_base', 'puret']['difference']:.1f}"
    for words in (
        f"by {low} to {high} points",
        f"than `transformer_base`, by {puret} (p {most:.4f} or less",
        f"±{min(widths):.1f} to ±{max(widths):.1f} points wide",
        f"{len(widths)} are not known yet",
        f"surely the same within {100 * table['comparisons']['margin']:.2f} points",
    ):
        assert words in PAGE


def test_what_it_says_of_further_seeds() -> None:
    printed = bench_ok("plan", "--detect", "1", "--data", "flickr8k", "--db", str(DATABASE)).stdout
    five, ten = (re.search(rf"^{seeds} +([0-9.]+)", printed, re.MULTILINE) for seeds in (5, 10))
    assert five is not None
    assert ten is not None
    assert f"tell {float(five[1]):.1f} points four times in five, ten seeds {float(ten[1]):.1f}" in PAGE
    assert "not with any number of seeds" in printed
    deviation = re.search(r"Seeds deviate by ([0-9.]+) points", printed)
    assert deviation is not None
    assert f"Flickr8k, $s$ {deviation[1]} over 1,000 images" in text_of("docs/statistics.md")


def test_what_it_says_of_rewards() -> None:
    assert tables_of(REWARDS, "CIDEr-D,95 % interval,Place,BLEU-4,METEOR,ROUGE-L")[0] in text_of("docs/flickr8k.md")
    group, alone = groups_of("flickr8k_rewards")
    assert {seed["state"] for row in group["rows"] for seed in row["learning"].values()} == {"finished learning"}
    assert [list(row["learning"]) for row in group["rows"]] == 10 * [[str(seed) for seed in range(7)]]
    models = [row["model"] for row in group["rows"]]
    pairs = {(models[pair["first"]], models[pair["second"]]): pair for pair in group["comparisons"]["pairs"]}
    told = [names for names, pair in pairs.items() if pair["verdict"] == "better"]
    assert [names for names, pair in pairs.items() if pair["verdict"] == "same"] == [
        ("expansionnet_v1", "expansionnet_v2")
    ]
    assert f"are the same within {100 * group['comparisons']['margin']:.2f} points" in PAGE
    best, second, first_six = "transformer_base", "aoanet", models[:6]
    by_best = [(best, other) for other in models[2:]]
    at_the_end = [(better, other) for better in first_six for other in ("puret", "updown")]
    assert {*told} == {*by_best, *at_the_end, (second, "att2in")}
    low, high = (f"{100 * of(pairs[names]['difference'] for names in by_best):.1f}" for of in (min, max))
    most = max(pairs[names]["p"] for names in by_best)
    assert f"than eight of the nine others, by {low} to {high} points (p {most:.4f} or less" in PAGE
    assert "with seven seeds the Transformer is then better than eight of the nine others" in README
    low, high = (f"{100 * of(pairs[names]['difference'] for names in at_the_end):.1f}" for of in (min, max))
    assert f"are worse than the first six, by {low} to {high} points" in PAGE
    points, p = 100 * pairs[second, "att2in"]["difference"], pairs[second, "att2in"]["p"]
    assert f"`att2in` than `aoanet`, by {points:.1f} (p {p:.4f})" in PAGE
    first = pairs[best, second]
    low, high = (f"{100 * first[bound]:+.1f}".replace("-", "−") for bound in ("low", "high"))
    assert f"is {100 * first['difference']:+.1f} points ({low} to {high}, p {first['p']:.2f})" in PAGE
    assert "14 seeds would tell none of these with 80 % power" in group["verdict"][1]
    assert f"Of {len(pairs)} pairs {len(told)} are told apart" in PAGE
    assert f"the other {len(pairs) - len(told) - 1} pairs" in PAGE
    seconds = {row["model"]: row["costs"]["train_seconds"]["value"] for row in group["rows"]}
    one, other = (f"{seconds[name] / 60:.0f}" for name in ("transformer_base", "expansionnet_v1"))
    assert f"takes {one} minutes with its cross-entropy and `expansionnet_v1` {other}," in PAGE
    [deviation] = [100 * row["scores"]["CIDEr-D"]["sd"] for row in group["rows"] if row["model"] == "cgru"]
    assert f"is worse than `transformer_base` alone here: its seeds deviate by {deviation:.1f} points" in PAGE
    before = {row["model"]: row["scores"] for row in alone["rows"]}

    def gains(metric: str) -> list[float]:
        pairs = [(row["scores"][metric], before[row["model"]][metric]) for row in group["rows"]]
        return [100 * (after["mean"] - first["mean"]) for after, first in pairs]

    for metric, said in (("CIDEr-D", "by {:.1f} to {:.1f} points"), ("BLEU-4", "BLEU-4 by {:.1f} to {:.1f}")):
        assert said.format(min(gains(metric)), max(gains(metric))) in PAGE
    added = "adds {:.1f} to {:.1f} points".format(min(gains("CIDEr-D")), max(gains("CIDEr-D")))
    assert f"Self-critical training {added} to each of them" in README
    assert f"METEOR changes by {max(map(abs, gains('METEOR'))):.1f} at most" in PAGE


def test_what_it_says_of_the_search() -> None:
    studies = json.loads((ROOT / "tests" / "fixtures" / "flickr8k_search.json").read_text(encoding="utf-8"))
    assert {row["model"] for row in groups_of("flickr8k_rewards")[0]["rows"]} == studies.keys()
    ahead = []
    for preset, *others in studies.values():
        assert (preset["preset"], len(others)) == (True, 3)
        ahead.append(100 * (preset["score"] - max(trial["score"] for trial in others)))
    assert min(ahead) > 0
    assert sum(trial["state"] == "pruned" for study in studies.values() for trial in study) == 11
    assert f"each time, by {min(ahead):.1f} to {max(ahead):.1f} points" in PAGE


def stored(path: Path, columns: str, by: str) -> list[tuple[Any, ...]]:
    """Of the CIDEr-D on test of the first table's runs that were trained and see the image."""
    query = f"""SELECT {columns} FROM scores JOIN runs ON runs.id = run_id WHERE metric = 'CIDEr-D' AND split = 'test'
        AND domain = 'overall' AND json_extract(signature, '$.schedule') = ? AND model <> 'blind' GROUP BY {by}"""  # noqa: S608 (both are literals)
    with sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True) as connection:
        return connection.execute(query, (groups_of(path.stem)[0]["signature"]["schedule"],)).fetchall()


def test_seeds_differ_as_the_page_of_coco_says() -> None:
    spans = [100 * span for (span,) in stored(DATABASE, "max(value) - min(value)", "model")]
    assert len(spans) == 10
    assert f"differ by up to {max(spans):.1f} points" in " ".join(text_of("docs/coco.md").split())


def test_rewards_end_alike_on_two_machines() -> None:
    (low, high, cpu), *gpu = stored(REWARDS, "min(seed), max(seed), avg(value)", "environment LIKE '%H200%'")
    assert (low, high, *gpu[0][:2]) == (0, 2, 3, 6)
    assert f"The mean over models differs by {100 * abs(cpu - gpu[0][2]):.1f} points" in PAGE


def test_what_it_says_of_costs() -> None:
    seconds = {row["model"]: row["costs"]["train_seconds"]["value"] for row in groups_of("flickr8k")[0]["rows"]}
    seconds.pop("blind")
    assert sum(value <= 43 for value in seconds.values()) == 6
    assert max(seconds, key=lambda name: seconds[name]) == "x_lan"
    assert seconds["x_lan"] > 2 * seconds["transformer_base"]
    assert "Six of the ten train within 43 seconds" in PAGE


def test_its_figures_are_those_of_the_database(tmp_path: Path) -> None:
    bench_ok("export", "figures", "--db", str(DATABASE), "--out", str(tmp_path))
    for file, shown in FIGURES.items():
        assert (tmp_path / file).read_text(encoding="utf-8") == (ROOT / "docs" / "images" / shown).read_text("utf-8")
