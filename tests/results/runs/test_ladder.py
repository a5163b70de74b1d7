"""Rows of several budgets: what longer training gave them, and what that says of how they ended."""

from collections.abc import Callable
from typing import Any

import pytest

from results import Quantity, SplitResult, Store
from results.runs.leaderboard import Group, leaderboard
from results.runs.standings import Judging

IMAGES = range(40)
Finish = Callable[[str, int, float], None]


@pytest.fixture
def finish(store: Store, make: Any) -> Finish:
    """Finish three seeds of a model under a budget, with this mean score."""

    def finishing(model: str, budget: int, mean: float) -> None:
        for seed in (1, 2, 3):
            scores = {image: mean + image / 100 + 0.01 * seed * (-1) ** image for image in IMAGES}
            overall = {"CIDEr-D": Quantity(sum(scores.values()) / len(scores))}
            result = SplitResult("test", dict.fromkeys(scores, "a"), {"overall": overall}, {"CIDEr-D": scores})
            named = "quick#12" if budget == 1 else f"quick*{budget}#{budget}{budget}"
            stages = [{"epochs": 4, "learning_rate": {"annealing": "step"}}]
            schedule = {"stages": stages} | ({} if budget == 1 else {"budget": budget})
            spec = make.spec(
                model,
                seed,
                variant=str(budget),
                signature={"schedule": named},
                config={"seed": seed, "preset": {"schedule": schedule}},
            )
            store.plan([spec])
            for number in range(1, 5):
                store.record_epoch(spec.key, make.epoch(number, val_cider=0.1 * number))  # rises to the end
            store.finish(spec.key, make.outcome(splits=(result,), costs={"train_steps": Quantity(504.0 * budget)}))

    return finishing


def groups(store: Store, **options: Any) -> dict[int, Group]:
    return {group.budget: group for group in leaderboard(store, judging=Judging(**options))}


def test_a_row_is_finished_where_twice_the_updates_gave_no_more_than_the_margin(store: Store, finish: Finish) -> None:
    for budget, means in ((1, (1.0, 0.7)), (2, (1.3, 0.703)), (4, (1.31, 0.9))):
        for model, mean in zip(("grows", "stays"), means, strict=True):
            finish(model, budget, mean)
    found = groups(store, margin=2.0)
    assert [group.name for group in found.values()] == [
        f"scenes test after {updates} updates" for updates in ("504", "1,008", "2,016")
    ]
    gains = {
        (budget, row.model): (row.gain.budget, row.gain.updates, row.gain.difference, row.gain.finished)
        for budget, group in found.items()
        for row in group.rows
        if row.gain
    }
    assert gains == {
        (1, "grows"): (2, 1008, pytest.approx(0.3), False),
        (1, "stays"): (2, 1008, pytest.approx(0.003), True),
        (2, "grows"): (4, 2016, pytest.approx(0.01), True),
        (2, "stays"): (4, 2016, pytest.approx(0.197), False),
    }


def test_what_longer_training_gave_says_more_than_how_validation_ended(store: Store, finish: Finish) -> None:
    """Validation rises to the end in all runs; rows that were trained longer have a place nevertheless."""
    for budget in (1, 2):
        finish("a", budget, 1.0)
        finish("b", budget, 0.5)
    found = groups(store)
    assert [row.standings["CIDEr-D"].best for row in found[1].rows] == [1, 2]
    assert [row.standings["CIDEr-D"].best for row in found[2].rows] == [None, None]


def test_a_budget_that_is_no_double_shows_no_end(store: Store, finish: Finish) -> None:
    finish("a", 2, 1.0)
    finish("a", 3, 1.0)
    (gain,) = (row.gain for row in groups(store)[2].rows)
    assert gain is not None
    assert (gain.times, gain.finished) == (1.5, False)
