"""The table of budgets: scores, places and gains side by side, and who overtakes whom."""

from dataclasses import replace

import pytest

from reports.tables.budget_table import budget_table
from reports.tables.facts import learning_label
from results.records import Quantity
from results.runs.leaderboard import Group, Row
from results.runs.spreads import Spread
from results.runs.standings import Comparisons, Gain, RankInterval, RowPair
from results.statistics.estimate import Estimate
from tests.reports.examples import group, row


def placed(model: str, mean: float, best: int, worst: int, steps: float, gain: float | None = None) -> Row:
    found = None if gain is None else Gain(2, 2.0, gain, finished=gain < 0.02)
    return replace(
        row(model),
        scores={"CIDEr-D": Spread(mean, 0.01, 3)},
        ranks={"CIDEr-D": RankInterval(best, worst)},
        costs={"train_steps": Quantity(steps)},
        gain=found,
    )


def of_budget(budget: int, rows: list[Row], verdicts: list[RowPair]) -> Group:
    pairs = Comparisons("CIDEr-D", 300, (1, 2, 3), tuple(range(len(rows))), tuple(verdicts), 0.02, None, 30.0, 0.5)
    return replace(group(*rows), budget=budget, budget_series="one", comparisons=pairs)


def better(first: int, second: int) -> RowPair:
    return RowPair(first, second, Estimate(0.1, 0.01, 0.2, 0.01), "better")


SHORT = of_budget(1, [placed("a", 1.0, 1, 1, 504, 0.01), placed("b", 0.8, 2, 2, 504, 0.4)], [better(0, 1)])
LONG = of_budget(2, [placed("b", 1.2, 1, 1, 1008), placed("a", 1.01, 2, 2, 1008)], [better(0, 1)])


def test_the_longest_rung_shows_all_and_who_overtook_whom() -> None:
    found = budget_table(LONG, [SHORT, LONG], {})
    assert found is not None
    assert [column.short for column in found.table.columns] == ["504", "Rank", "1,008", "Rank", "Gain"]
    cells = {line.model: [cell.text for cell in line.cells] for line in found.table.lines}
    assert cells == {"b": ["80.0", "2", "120.0", "1", "+40.0"], "a": ["100.0", "1", "101.0", "2", "+1.0"]}
    assert [line.model for line in found.table.lines] == ["b", "a"]
    held, turned = found.table.sentences
    assert "0 of 1 differences" in held
    assert "between 504 and 1,008 updates: b over a" in turned


def test_pairs_that_every_rung_tells_alike_are_counted() -> None:
    models = [placed("c", 0.5, 3, 3, 504), *LONG.rows]
    long = of_budget(2, [*LONG.rows, models[0]], [better(0, 1), better(0, 2), better(1, 2)])
    short = of_budget(1, [*SHORT.rows, models[0]], [better(0, 1), better(0, 2), better(1, 2)])
    found = budget_table(long, [short, long], {})
    assert found is not None
    assert "2 of 3 differences" in found.table.sentences[0]


def test_scores_are_of_the_seeds_that_every_budget_has() -> None:
    short = replace(SHORT.rows[0], seeds=(1, 2), keys=("a1", "a2"), by_seed={1: 0.0, 2: 0.5})
    long = replace(LONG.rows[1], seeds=(1,), keys=("a3",), by_seed={1: 0.1})
    budgets = [replace(SHORT, rows=(short,), comparisons=None), replace(LONG, rows=(long,), comparisons=None)]
    found = budget_table(budgets[1], budgets, {})
    assert found is not None
    [line] = found.table.lines
    assert [line.cells[at].text for at in (0, 2)] == ["0.0", "10.0"]
    assert line.cells[0].note


def test_seeds_that_all_models_lack_alike_are_told_once() -> None:
    short = [replace(each, seeds=(1, 2), by_seed={1: 0.5, 2: 0.7}) for each in SHORT.rows]
    long = [replace(each, seeds=(1,), by_seed={1: 0.9}) for each in LONG.rows]
    budgets = [replace(SHORT, rows=tuple(short), comparisons=None), replace(LONG, rows=tuple(long), comparisons=None)]
    found = budget_table(budgets[1], budgets, {})
    assert found is not None
    assert "seed 1 alone" in found.note
    assert [(line.cells[0].text, line.cells[0].note) for line in found.table.lines] == [("50.0", "")] * 2
    assert found.table.lines[0].cells[2].text == "90.0"


def test_one_budget_alone_and_shorter_rungs_have_no_table() -> None:
    assert budget_table(LONG, [LONG], {}) is None
    assert budget_table(SHORT, [SHORT, LONG], {}) is None
    other = replace(LONG, budget_series="another")
    assert budget_table(other, [SHORT, other], {}) is None


@pytest.mark.parametrize(("gain", "label"), [(0.4, "still gains"), (0.01, None)])
def test_a_row_that_still_gains_is_marked(gain: float, label: str | None) -> None:
    badge = learning_label(placed("a", 1.0, 1, 1, 504, gain))
    assert (badge and badge.label) == label


def test_a_pair_that_turns_over_two_budgets_is_told() -> None:
    undecided = of_budget(2, list(LONG.rows), [replace(better(0, 1), verdict="unknown")])
    longest = of_budget(4, [placed("b", 1.3, 1, 1, 2016), placed("a", 1.0, 2, 2, 2016)], [better(0, 1)])
    found = budget_table(longest, [SHORT, undecided, longest], {})
    assert found is not None
    assert "Reversed between 504 and 2,016 updates: b over a" in found.table.sentences[-1]


def test_two_rows_of_one_model_stay_two_lines() -> None:
    newer, older = (replace(LONG.rows[1], without_schedule=code) for code in ("newer", "older"))
    older = replace(older, scores={"CIDEr-D": Spread(0.5, 0.01, 3)})
    long = replace(LONG, rows=(newer, older), comparisons=None)
    short = replace(SHORT, rows=(replace(SHORT.rows[0], without_schedule="newer"),), comparisons=None)
    found = budget_table(long, [short, long], {})
    assert found is not None
    assert [[line.cells[at].text for at in (0, 2)] for line in found.table.lines] == [["100.0", "101.0"], ["", "50.0"]]
