"""Rows of several budgets: what longer training gave them, and what that says of how they ended."""

from typing import Any

import pytest

from results import Quantity, Store
from results.runs.leaderboard import Group, leaderboard
from results.runs.standings import Judging
from tests.results.conftest import Make
from tests.results.runs.finishing import finish, level


def train(store: Store, model: str, budget: int, mean: float) -> None:
    """Finish three seeds of a model under a budget, with this mean score; validation rises to the end."""
    for seed in (1, 2, 3):
        stages = [{"epochs": 4, "learning_rate": {"annealing": "step"}}]
        schedule = {"stages": stages} | ({} if budget == 1 else {"budget": budget})
        finish(
            store, model, seed, level(mean, 0.01 * seed),
            epochs=[Make.epoch(number, val_cider=0.1 * number) for number in range(1, 5)],
            outcome={"costs": {"train_steps": Quantity(504.0 * budget)}},
            variant=str(budget),
            signature={"schedule": "quick#12" if budget == 1 else f"quick*{budget}#{budget}{budget}"},
            config={"seed": seed, "preset": {"schedule": schedule}},
        )  # fmt: skip


def groups(store: Store, **options: Any) -> dict[int, Group]:
    return {group.budget: group for group in leaderboard(store, judging=Judging(**options))}


def test_a_row_is_finished_where_twice_the_updates_gave_no_more_than_the_margin(store: Store) -> None:
    for budget, means in ((1, (1.0, 0.7)), (2, (1.3, 0.703)), (4, (1.31, 0.9))):
        for model, mean in zip(("grows", "stays"), means, strict=True):
            train(store, model, budget, mean)
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


def test_what_longer_training_gave_says_more_than_how_validation_ended(store: Store) -> None:
    """Validation rises to the end in all runs; rows that were trained longer have a place nevertheless."""
    for budget in (1, 2):
        train(store, "a", budget, 1.0)
        train(store, "b", budget, 0.5)
    found = groups(store)
    assert [row.standings["CIDEr-D"].best for row in found[1].rows] == [1, 2]
    assert [row.standings["CIDEr-D"].best for row in found[2].rows] == [None, None]


def test_a_budget_that_is_no_double_shows_no_end(store: Store) -> None:
    train(store, "a", 2, 1.0)
    train(store, "a", 3, 1.0)
    (gain,) = (row.gain for row in groups(store)[2].rows)
    assert gain is not None
    assert (gain.times, gain.finished) == (1.5, False)
