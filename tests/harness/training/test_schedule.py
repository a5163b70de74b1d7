"""Learning rates of the schedules."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.canonical import digest
from harness.config import load_preset
from harness.training.schedule import LearningRate, Stage

FIXTURES = Path(__file__).parents[2] / "fixtures" / "training"


def test_warm_up_is_linear_and_reaches_the_peak() -> None:
    rate = LearningRate(peak=1.0, warmup_steps=4)
    assert [rate.at(step, 10, 100) for step in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]


def test_step_annealing_falls_every_so_many_epochs() -> None:
    rate = LearningRate(peak=1.0, annealing="step", factor=0.5, every_epochs=2)
    assert [rate.at(step, 10, 100) for step in (0, 19, 20, 39, 40)] == [1.0, 1.0, 0.5, 0.5, 0.25]


def test_cosine_annealing_ends_at_its_floor() -> None:
    rate = LearningRate(peak=2.0, warmup_steps=10, annealing="cosine", floor=0.1)
    assert rate.at(10, 10, 110) == pytest.approx(2.0)
    assert rate.at(60, 10, 110) == pytest.approx(1.1)
    assert rate.at(110, 10, 110) == pytest.approx(0.2)


@pytest.mark.parametrize("stage", ["step1_xe_frozen", "step2_xe_e2e", "step3_scst_frozen", "annealing_example"])
def test_released_learning_rates(stage: str) -> None:
    released = json.loads((FIXTURES / "lr_schedules.json").read_text())[stage]
    ours = released["kind"] == "custom_warmup_anneal"
    rate = LearningRate(
        peak=released["lr"],
        warmup_steps=released["warmup"],
        warmup="hyperbolic" if ours else "linear-from-zero",
        annealing="step",
        factor=released.get("anneal_coeff", 0.8),
        every_epochs=released["anneal_every_epoch"],
        minimum=released.get("min_lr", 0.0),
    )
    found = [rate.at(it, released["num_batches"], 10**6) for it in released["its"]]
    assert found == pytest.approx(released["values"], rel=1e-12)


def test_the_rate_never_falls_below_its_minimum() -> None:
    rate = LearningRate(peak=1.0, annealing="step", factor=0.1, minimum=0.05)
    assert [rate.at(step, 1, 4) for step in range(4)] == pytest.approx([1.0, 0.1, 0.05, 0.05])


def test_settings_that_came_later_show_in_a_dump_only_where_they_are_used() -> None:
    plain = {"name": "xe", "epochs": 1, "batch_size": 2, "learning_rate": {"peak": 0.1}}
    dumped = Stage.model_validate(plain).model_dump(mode="json")
    assert not {"accumulation", "backbone", "batch_of", "drop_last", "self_critical"} & set(dumped)
    assert "warmup" not in dumped["learning_rate"]
    used = Stage.model_validate(plain | {"backbone": "trained", "accumulation": {"parts": 2}})
    dumped = used.model_dump(mode="json")
    assert (dumped["backbone"], dumped["accumulation"]) == ("trained", {"parts": 2, "gradients": "mean"})
    assert Stage.model_validate(dumped) == used


@pytest.mark.parametrize(("name", "expected"), [("quick", "7054d9"), ("shared-xe", "5ee75f"), ("small-xe", "50f6b7")])
def test_the_identity_of_a_stored_schedule_stays_what_it_was(name: str, expected: str) -> None:
    schedule = load_preset({"quick": "quick", "shared-xe": "paper", "small-xe": "small"}[name]).schedule
    assert schedule.name == name
    assert digest(schedule.model_dump(mode="json", exclude={"name", "summary"}), 6) == expected
