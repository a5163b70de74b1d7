"""The page of scenes shows what the database in the repository holds."""

import re
import sqlite3
from collections import defaultdict
from itertools import combinations
from statistics import fmean
from typing import Any

import pytest
from scipy.stats import kendalltau

from reports.tables.numbers import listed
from tests.documentation.pages import ROOT, groups_of, text_of
from tests.documentation.test_readme import NUMBERS
from tests.harness.conftest import bench

DATABASE = ROOT / "baselines" / "scenes.sqlite"
PAGE = " ".join(text_of("docs/scenes.md").split())
KINDS = ("object", "colour", "size", "count", "relation", "background")
ONE_VECTOR = {"cgru", "show_tell"}
ONE_LSTM = {"att2all", "att2in", "show_attend_tell"}
Pair = tuple[str, str]


class Rung:
    """One split's table after one budget: means, and the better model of each pair that is told."""

    def __init__(self, group: dict[str, Any]) -> None:
        rows = [row["model"] for row in group["rows"]]
        self.verdict, self.seeds = group["verdict"], group["comparisons"]["seeds"]
        self.means = {row["model"]: 100 * row["scores"]["CIDEr-D"]["mean"] for row in group["rows"]}
        self.better: dict[Pair, str | None] = {}
        for pair in group["comparisons"]["pairs"]:
            names = rows[pair["first"]], rows[pair["second"]]
            ahead = names[0] if pair["difference"] > 0 else names[1]
            assert pair["verdict"] in ("better", "unknown")
            self.better[min(names), max(names)] = ahead if pair["verdict"] == "better" else None

    def worse_than(self, winner: str) -> set[str]:
        return {one if better == other else other for (one, other), better in self.better.items() if better == winner}


@pytest.fixture(scope="module")
def ladders() -> dict[str, dict[int, Rung]]:
    """By split, the rungs of the models on regions by their updates, ascending."""
    largest = [group for group in groups_of("scenes") if len(group["rows"]) == 24]
    found: dict[str, dict[int, Rung]] = defaultdict(dict)
    for group in largest:
        budget = re.search(r"\*(\d+)#", group["signature"]["schedule"])
        found[group["split"]][504 * int(budget[1] if budget else 1)] = Rung(group)
    return {split: dict(sorted(rungs.items())) for split, rungs in found.items()}


def told_by_all(rungs: dict[int, Rung]) -> dict[Pair, str]:
    """The better model of each pair that every budget tells, in the same direction."""
    verdicts = [rung.better for rung in rungs.values()]
    by_pair = {pair: {verdict[pair] for verdict in verdicts} for pair in verdicts[0]}
    return {pair: better for pair, found in by_pair.items() if len(found) == 1 and (better := next(iter(found)))}


def test_what_holds_under_every_budget(ladders: dict[str, dict[int, Rung]]) -> None:
    test, nocaps = (told_by_all(ladders[split]) for split in ("test", "nocaps"))
    assert (
        f"{len(test)} of 253 pairs are told by every budget, and in the same direction**; on nocaps {len(nocaps)}"
        in PAGE
    )
    rungs = list(ladders["test"].values())
    names = {name for pair in rungs[0].better for name in pair}
    others = names - ONE_VECTOR
    assert {test[min(a, b), max(a, b)] for a in ONE_VECTOR for b in others} == others
    assert {test[min(a, b), max(a, b)] for a in ONE_LSTM for b in others - ONE_LSTM} == others - ONE_LSTM
    assert names - {name for rung in rungs for best in names for name in rung.worse_than(best)} == {"puret"}
    worse = sum(better == "puret" for better in test.values())
    assert f"a model that is better than `puret`, and every budget tells {worse} that are worse" in PAGE


def test_what_readme_says(ladders: dict[str, dict[int, Rung]]) -> None:
    readme = " ".join(text_of("README.md").split())
    assert (
        f"Every budget tells {len(told_by_all(ladders['test']))} of their 253 pairs apart, and in the same direction"
        in readme
    )
    first, *_, last = ladders["test"].values()
    losers = [name for name in last.worse_than("gcn_lstm") if name not in first.worse_than("gcn_lstm")]
    beat = [name for name in losers if "gcn_lstm" in first.worse_than(name)]
    assert f"GCN-LSTM is worse than {NUMBERS[len(beat)]} models after 504 updates" in readme
    assert [len(rung.seeds) for rung in ladders["test"].values()] == [5, 5, 5, 5]


def test_what_turns_with_the_budget(ladders: dict[str, dict[int, Rung]]) -> None:
    told = []
    for split, wording in (("test", "updates is {:.2f}"), ("nocaps", "on nocaps {:.2f}")):
        rungs = ladders[split]
        first, *_, last = (rung.means for rung in rungs.values())
        names = sorted(first.keys() - {"blind"})
        tau, _ = kendalltau([first[name] for name in names], [last[name] for name in names])
        assert wording.format(tau) in PAGE
        told.append(
            listed([str(sum(better is not None for better in rung.better.values())) for rung in rungs.values()])
        )
    assert f"Of 253 pairs {told[0]} are told apart" in PAGE
    assert f"on nocaps {told[1]}." in PAGE
    rungs = ladders["test"]
    turned = {
        (after, before)
        for one, other in combinations(rungs.values(), 2)
        for pair, before in one.better.items()
        if before and (after := other.better[pair]) and after != before
    }
    turned -= {("get", "transformer_base"), ("rstnet", "transformer_base")}
    assert {after for after, _ in turned} == {"gcn_lstm"}
    losers = listed([f"`{name}`" for name in sorted(before for _, before in turned)])
    assert f"`gcn_lstm` is worse than {losers}, and `get` and `rstnet` than `transformer_base`" in PAGE
    first, *_, last = (rung.means for rung in rungs.values())
    gains = {name: last[name] - first[name] for name in first.keys() - {"blind"}}
    most, least = (of(gains, key=lambda name: gains[name]) for of in (max, min))
    assert f"`{most}` gains {gains[most]:.0f} points, `{least}` {gains[least]:.0f}" in PAGE
    leaders = [max(means, key=lambda name: means[name]) for means in (first, last)]
    assert "`{}` leads the first, `{}` the last".format(*leaders) in PAGE


def test_its_table_of_budgets_is_that_of_the_database() -> None:
    exported = bench("export", "leaderboard", "--db", str(DATABASE), "--columns", "CIDEr-D").output
    ladder = exported.partition("### By budget of training")[2].partition("###")[0].strip()
    assert "Every budget tells 111 of 253 pairs, and in the same direction" in ladder
    ladder = "\n".join(line for line in ladder.splitlines() if line.startswith("|"))
    assert ladder.count("\n|") == 25
    gains = [float(line.split("|")[-2]) for line in ladder.splitlines() if "×" in line and "floor" not in line]
    assert [sum(gain < 0 for gain in gains), sum(gain > 0 for gain in gains)] == [19, 4]
    assert "19 of the 23 models lose points, and four gain" in PAGE
    assert ladder in text_of("docs/scenes.md")


def test_its_facts_are_those_of_the_database(ladders: dict[str, dict[int, Rung]]) -> None:
    models = ladders["test"][504].means.keys() - {"blind"}
    query = """SELECT model, json_extract(signature, '$.schedule'), split, domain, metric, avg(value) FROM scores
        JOIN runs ON runs.id = run_id WHERE metric LIKE 'facts-precision%' GROUP BY 1, 2, 3, 4, 5"""
    found: dict[tuple[str, str, str, str], list[float]] = defaultdict(list)
    with sqlite3.connect(f"file:{DATABASE}?mode=ro&immutable=1", uri=True) as connection:
        for model, schedule, split, domain, metric, value in connection.execute(query):
            if value is not None and (model in models or model == "human"):
                rung = "people" if model == "human" else schedule.partition("#")[0]
                found[rung, split, domain, metric].append(100 * value)

    def line(title: str, rung: str, split: str = "test", domain: str = "overall") -> str:
        values = [fmean(found[rung, split, domain, f"facts-precision ({kind})"]) for kind in KINDS]
        return f"| {title} | {' | '.join(f'{value:.1f}' for value in values)} |"

    budgets = {updates: f"quick*{updates // 504}" if updates > 504 else "quick" for updates in ladders["test"]}
    longest = list(budgets.values())[-1]
    wanted = [line(f"after {updates:,} updates", rung) for updates, rung in budgets.items()]
    wanted += [line("people", "people")]
    wanted += [line(f"nocaps {of}", longest, "nocaps", of) for of in ("in-domain", "near-domain", "out-domain")]
    assert "\n".join(wanted) in text_of("docs/scenes.md")


def test_what_it_says_of_longer_training(ladders: dict[str, dict[int, Rung]]) -> None:
    *_, before, last = ladders["test"].values()
    assert next(words for words in before.verdict if "still gain" in words) in PAGE
    unknown = sum(better is None for better in last.better.values())
    assert f"Of the {unknown} other pairs" in PAGE
