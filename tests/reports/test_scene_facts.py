"""Answers from facts: over models and images, "not known" where the interval holds zero or models are lacking."""

from dataclasses import replace

import numpy as np
import pytest

from reports.tables.scene_facts import answers
from results.runs.fact_rows import FactTable
from results.runs.facts import FACT_METRICS, fact_metric
from results.runs.run import Run
from tests.reports.examples import group, row, run

IMAGES = 400


def table(levels: dict[str, dict[str, float]], *, schedule: str = "xe", human: float = 1.0) -> FactTable:
    """Models whose F of a kind is given, of others 0.5; people's are all `human`."""
    generator = np.random.default_rng(3)
    rows, influences = [], {}
    for model, level in {**levels, "human": {}}.items():
        expected = np.full(len(FACT_METRICS), human if model == "human" else 0.5)
        for kind, value in level.items():
            expected[FACT_METRICS.index(fact_metric("F", kind))] = value
        noise = generator.normal(0, 0.1, (2, IMAGES, len(FACT_METRICS)))
        influences[f"{model}-{schedule}"] = expected + noise - noise.mean(axis=(0, 1))
        rows.append(replace(row(model), keys=(f"{model}-{schedule}", "other"), seeds=(1, 2)))
    *models, people = rows
    of_table = replace(group(*models), references=(people,), signature={"beam": "3", "schedule": schedule})
    return FactTable(of_table, {}, influences, {"overall": IMAGES})


def runs(*tables: FactTable) -> dict[str, Run]:
    pooled = ("show_tell", "cgru")
    found = {}
    for each in tables:
        rewarded = "scst" in each.group.signature["schedule"]
        stages = [{"objective": name} for name in ("cross_entropy", *(["self_critical"] if rewarded else []))]
        for of in (*each.group.rows, *each.group.references):
            visual = "pooled" if of.model in pooled else "regions"
            found[of.keys[0]] = run(card={"visual": visual}, preset={"schedule": {"stages": stages}})
    return found


def verdicts(*tables: FactTable) -> list[str]:
    return [answer.partition(":")[0] for _, answer in answers(tables, runs(*tables))]


def test_what_is_apart_is_told() -> None:
    placed = {name: {"relation": 0.8, "count": 0.6} for name in ("gcn_lstm", "rstnet")}
    other = {"updown": {"relation": 0.6, "count": 0.6}, "m2": {"relation": 0.62, "count": 0.62}}
    pooled = {name: {"relation": 0.6, "count": 0.1} for name in ("show_tell", "cgru")}
    found = table(placed | other | pooled)
    assert verdicts(found)[:2] == ["yes", "yes"]
    assert verdicts(table({**placed, "updown": {"relation": 0.9}, "m2": {"relation": 0.7}}))[:2] == ["not known"] * 2


def test_rewards_are_compared_where_nothing_else_differs() -> None:
    before = table({"updown": {"size": 0.5}, "m2": {"size": 0.5}})
    after = table({name: dict.fromkeys(("size", "colour"), 0.2) for name in ("updown", "m2")}, schedule="xe+scst")
    assert verdicts(before, after)[2] == "yes"
    elsewhere = replace(after, group=replace(after.group, signature={"beam": "5", "schedule": "xe+scst"}))
    assert verdicts(before, elsewhere)[2] == "not known"


@pytest.mark.parametrize(("count", "expected"), [(0.1, "count"), (0.5, "not known, perhaps")])
def test_the_largest_gap_to_people(count: float, expected: str) -> None:
    found = table({name: {"count": count} for name in ("updown", "m2", "gcn_lstm")})
    assert verdicts(found)[3].startswith(expected)


def test_ablations_and_floors_have_no_part() -> None:
    assert answers([table({"blind": {}, "m2/no-memory": {}})], {}) == []
