"""A row's costs: what depends on the machine is of the machine that most of its group ran on."""

from collections.abc import Callable
from typing import Any

import pytest

from results import Quantity, Store
from results.runs.leaderboard import Row, leaderboard
from results.runs.spreads import OtherMachine

XEON, EPYC = {"cpu": "Xeon"}, {"cpu": "EPYC"}
A100 = {"cpu": "EPYC", "device": {"type": "cuda", "name": "A100"}}
Finish = Callable[..., None]


@pytest.fixture
def finish(store: Store, make: Any) -> Finish:
    """`finish(model, seed, seconds, environment)`: latency and training take the same, parameters are as many."""

    def finishing(model: str, seed: int, seconds: float | None, environment: dict[str, Any]) -> None:
        time = Quantity(seconds, None if seconds else "no clock", "s")
        costs = {"train_seconds": time, "latency_median": time, "parameters": Quantity(seconds or 1.0)}
        make.run(store, make.outcome(costs=costs, environment=environment), model, seed)

    return finishing


def rows(store: Store) -> dict[str, Row]:
    (group,) = leaderboard(store)
    return {row.model: row for row in group.rows}


def test_times_are_of_the_seeds_on_the_machine_of_most(store: Store, finish: Finish) -> None:
    for model, seed, seconds, environment in (
        ("m2", 0, 4.0, XEON),
        ("m2", 1, 6.0, XEON),
        ("m2", 2, 1.0, EPYC),
        ("aoanet", 0, 2.0, EPYC),
        ("updown", 0, 8.0, XEON),
    ):
        finish(model, seed, seconds, environment)
    found = rows(store)
    assert found["m2"].costs["train_seconds"].value == 5.0
    assert found["m2"].costs["parameters"].value == pytest.approx(11 / 3), "the same on every machine"
    said = "of 2 of 3 seeds, trained on Xeon as most others; the rest was on EPYC"
    assert found["m2"].other_machines["train_seconds"] == OtherMachine(said, (0, 1))
    assert found["aoanet"].costs["train_seconds"].value == 2.0, "measured, but nowhere to be compared"
    assert found["aoanet"].other_machines["train_seconds"] == OtherMachine("trained on EPYC, most others on Xeon", ())
    assert found["aoanet"].other_machines.keys() == {"train_seconds", "latency_median"}
    assert not found["updown"].other_machines


def test_what_was_measured_apart_is_of_that_machine(store: Store, finish: Finish) -> None:
    finish("m2", 0, 4.0, A100 | {"measurement": XEON})
    finish("aoanet", 0, 4.0, A100 | {"measurement": {"load_average": 0.5}})
    finish("updown", 0, 4.0, A100)
    (said,) = rows(store)["m2"].other_machines.items()
    assert said == ("latency_median", OtherMachine("measured on Xeon, most others on A100", ()))


def test_seeds_without_the_cost_or_a_known_machine_are_as_ever(store: Store, finish: Finish) -> None:
    finish("m2", 0, None, EPYC)
    finish("m2", 1, 3.0, {})
    finish("aoanet", 0, 5.0, XEON)
    finish("updown", 0, 5.0, XEON)
    found = rows(store)
    assert found["m2"].costs["train_seconds"].value == 3.0
    assert not any(row.other_machines for row in found.values())
