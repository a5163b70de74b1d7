"""Learning rates of the schedules."""

from __future__ import annotations

import pytest

from harness.training.schedule import LearningRate


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
