"""The page of scenes shows the numbers that the database in the repository holds."""

import re
import sqlite3
from collections import defaultdict
from statistics import fmean
from typing import Any

import pytest
from scipy.stats import kendalltau

from tests.documentation.pages import ROOT, groups_of, missing_numbers, tables_in, text_of
from tests.harness.conftest import bench_ok

DATABASE = ROOT / "baselines" / "scenes.sqlite"
PAGE = "docs/scenes.md"
KINDS = ("object", "colour", "size", "count", "relation", "background")
Pair = tuple[str, str]


class Budget:
    """One split's table after one budget: means, and of each pair the better model, if one is."""

    def __init__(self, group: dict[str, Any]) -> None:
        models = [row["model"] for row in group["rows"]]
        self.means = {row["model"]: 100 * row["scores"]["CIDEr-D"]["mean"] for row in group["rows"]}
        self.better: dict[Pair, str | None] = {}
        for pair in group["comparisons"]["pairs"]:
            first, second = models[pair["first"]], models[pair["second"]]
            winner = first if pair["difference"] > 0 else second
            self.better[min(first, second), max(first, second)] = winner if pair["verdict"] == "better" else None

    def better_pairs(self) -> int:
        return sum(winner is not None for winner in self.better.values())


@pytest.fixture(scope="module")
def budgets() -> dict[str, dict[int, Budget]]:
    """By split, the tables of the models on regions by their updates, ascending."""
    by_split: dict[str, dict[int, Budget]] = defaultdict(dict)
    for group in groups_of("scenes"):
        if len(group["rows"]) == 24:
            factor = re.search(r"\*(\d+)#", group["signature"]["schedule"])
            by_split[group["split"]][504 * int(factor[1] if factor else 1)] = Budget(group)
    return {split: dict(sorted(tables.items())) for split, tables in by_split.items()}


def better_under_all(tables: dict[int, Budget]) -> list[str]:
    """The better models of the pairs of which every budget finds the same model better."""
    winners = ({table.better[pair] for table in tables.values()} for pair in tables[504].better)
    return [winner for by_budget in winners if len(by_budget) == 1 and (winner := next(iter(by_budget)))]


def test_its_numbers_of_pairs_are_those_of_the_database(budgets: dict[str, dict[int, Budget]]) -> None:
    test, nocaps = (better_under_all(budgets[split]) for split in ("test", "nocaps"))
    pairs = len(budgets["test"][504].better)
    assert not missing_numbers(PAGE, {pairs, len(test), len(nocaps), test.count("puret")})
    assert not missing_numbers("README.md", {pairs, len(test)})
    better = [[table.better_pairs() for table in tables.values()] for tables in budgets.values()]
    assert not missing_numbers(PAGE, {pairs, *better[0], *better[1]})
    assert not missing_numbers(PAGE, {pairs - budgets["test"][4032].better_pairs()})


def test_its_numbers_of_orders_and_gains_are_those_of_the_database(budgets: dict[str, dict[int, Budget]]) -> None:
    models = sorted(budgets["test"][504].means.keys() - {"blind"})
    orders = [
        kendalltau(*([tables[updates].means[model] for model in models] for updates in (504, 4032))).statistic
        for tables in budgets.values()
    ]
    means = {updates: table.means for updates, table in budgets["test"].items()}
    gains = [means[4032][model] - means[504][model] for model in models]
    losers = sum(means[4032][model] < means[2016][model] for model in models)
    shown = {*(f"{tau:.2f}" for tau in orders), f"{min(gains):.0f}", f"{max(gains):.0f}"}
    assert not missing_numbers(PAGE, shown | {losers, len(models)})


def test_its_table_of_budgets_is_that_of_the_database() -> None:
    exported = bench_ok("export", "leaderboard", "--db", str(DATABASE), "--metrics", "CIDEr-D", "--table", "all").stdout
    by_budget = [table for table in tables_in(exported) if len(table) == 24 and len(table[0][1]) == 13]
    assert by_budget[0] in tables_in(text_of(PAGE))


def test_its_facts_are_those_of_the_database(budgets: dict[str, dict[int, Budget]]) -> None:
    models = budgets["test"][504].means.keys() - {"blind"}
    query = """SELECT model, json_extract(signature, '$.schedule'), split, domain, metric, avg(value) FROM scores
        JOIN runs ON runs.id = run_id WHERE metric LIKE 'facts-precision%' GROUP BY 1, 2, 3, 4, 5"""
    values: dict[tuple[str, str, str, str], list[float]] = defaultdict(list)
    with sqlite3.connect(f"file:{DATABASE}?mode=ro&immutable=1", uri=True) as connection:
        for model, schedule, split, domain, metric, value in connection.execute(query):
            if value is not None and (model in models or model == "human"):
                schedule = "people" if model == "human" else schedule.partition("#")[0]
                values[schedule, split, domain, metric].append(100 * value)

    def row(schedule: str, split: str = "test", domain: str = "overall") -> list[str]:
        return [f"{fmean(values[schedule, split, domain, f'facts-precision ({kind})']):.1f}" for kind in KINDS]

    rows = [row(schedule) for schedule in ("quick", "quick*2", "quick*4", "quick*8", "people")]
    rows += [row("quick*8", "nocaps", domain) for domain in ("in-domain", "near-domain", "out-domain")]
    assert rows in [[numbers for _, numbers in table] for table in tables_in(text_of(PAGE))]
