"""Whether a model had finished learning, from its validation scores."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression

from harness.config.schedule import LearningRate
from results.statistics.learning import CHANCE, RISE, Learning, idle_share, learning, mean_learning

RISING = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)


def test_a_steady_rise_is_still_learning_and_has_no_noise() -> None:
    found = learning(RISING)
    assert found.state == "still learning"
    assert found.rise == pytest.approx(0.2), "of the last two validations above the six before"
    assert found.error == 0, "a curve that only rises shows no noise"
    assert not found.fell


@pytest.mark.parametrize(
    ("scores", "state", "fell"),
    [
        ((0.5, 0.9, 0.98, 1.0, 1.0, 1.0, 1.0, 1.0), "finished learning", False),
        ((0.5, 0.9, 1.0, 0.97, 0.94, 0.91, 0.88, 0.85), "finished learning", True),
        ((0.5, 0.9, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0 + RISE / 2), "finished learning", False),
        ((0.1, 0.9), "unknown", False),
        ((0.0, CHANCE), "at chance", False),
        ((0.0, 0.005, 0.0, CHANCE, 0.0), "at chance", False),
        ((), "unknown", False),
    ],
)
def test_flat_falling_and_short_curves_are_not(scores: tuple[float, ...], state: str, fell: bool) -> None:
    found = learning(scores)
    assert (found.state, found.fell, found.validations) == (state, fell, len(scores))
    assert (found.rise is None) == (len(scores) < 3 or max(scores) <= CHANCE)


def test_patience_ends_learning_whatever_the_curve() -> None:
    assert learning(RISING, stopped_early=True).state == "stopped early"
    assert learning((0.1,), stopped_early=True).state == "stopped early"


@pytest.mark.parametrize(("idle", "flat"), [(0.1, "finished learning"), (0.101, "rate near zero")])
def test_what_is_flat_at_a_rate_near_zero_has_not_finished(idle: float, flat: str) -> None:
    assert learning([0.5] * 8, idle=idle).state == flat
    assert learning([0.5] * 8, stopped_early=True, idle=idle).state == flat.replace(
        "finished learning", "stopped early"
    )
    assert learning(RISING, idle=idle).state == "still learning"


@given(epochs=st.integers(1, 40), start=st.floats(0.2, 0.8), every=st.floats(0.01, 0.2))
def test_the_idle_share_of_stored_rates_is_that_of_the_schedule(epochs: int, start: float, every: float) -> None:
    steps = 500
    stepwise = LearningRate(peak=1.0, annealing="step", factor=0.5, from_share=start, every_share=every)
    cosine = LearningRate(peak=1.0, annealing="cosine")
    for rate in (stepwise, cosine):
        ends = [rate.at(steps * (epoch + 1) - 1, steps, steps * epochs) for epoch in range(epochs)]
        found = idle_share(ends, stepwise=rate is stepwise)
        # Where a fall begins within an epoch, its ends do not tell.
        assert found <= rate.idle_share(steps, steps * epochs) + max(every, 1 / epochs)
        if epochs > 2 / start:  # an epoch ends before the rate falls
            assert found == pytest.approx(rate.idle_share(steps, steps * epochs), abs=every + 0.02)


def test_a_rate_may_fall_to_no_number_above_zero() -> None:
    assert idle_share([1.0, 0.0, 0.0], stepwise=True) == pytest.approx(2 / 3, abs=0.01)


def test_noise_alone_is_rarely_taken_for_learning() -> None:
    generator = np.random.default_rng(1)
    flat = [learning((1 + generator.normal(0, 0.05, 12)).tolist()).state for _ in range(1_000)]
    assert flat.count("still learning") <= 50
    rising = [learning((np.linspace(0, 2, 12) + generator.normal(0, 0.05, 12)).tolist()).state for _ in range(1_000)]
    assert rising.count("still learning") >= 990


def ended(state: str, rise: float | None = None, error: float | None = None) -> Learning:
    return Learning(state, 8, rise, error)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seeds", "state"),
    [
        ([("still learning", 0.05, 0.01)], "still learning"),
        ([("still learning", 0.03, 0.0), *[("finished learning", 0.0, 0.0)] * 2], "finished learning"),
        ([("still learning", 0.09, 0.0), *[("finished learning", 0.0, 0.0)] * 2], "still learning"),
        ([("finished learning", 0.03, 0.03)] * 9, "still learning"),  # together they show what none shows alone
        ([("stopped early", 0.5, 0.0), ("finished learning", 0.0, 0.0)], "finished learning"),
        ([("stopped early", 0.5, 0.0)] * 2, "stopped early"),
        ([("unknown", None, None), ("still learning", 0.5, 0.0)], "unknown"),
        ([("rate near zero", 0.0, 0.0), ("finished learning", 0.0, 0.0)], "rate near zero"),
        ([("rate near zero", 0.0, 0.0), ("still learning", 0.5, 0.0)], "still learning"),
        ([("at chance", None, None)] * 2, "at chance"),
        ([("at chance", None, None), ("finished learning", 0.0, 0.0)], "finished learning"),
        ([], "unknown"),
    ],
)
def test_a_row_is_judged_by_the_mean_of_its_seeds(seeds: list[tuple[str, float, float]], state: str) -> None:
    assert mean_learning([ended(*seed) for seed in seeds]).state == state


def test_more_seeds_of_flat_curves_are_rarely_taken_for_learning() -> None:
    generator = np.random.default_rng(2)
    for count in (1, 3, 8):
        rows = [[learning((1 + generator.normal(0, 0.05, 8)).tolist()) for _ in range(count)] for _ in range(300)]
        assert sum(mean_learning(row).state == "still learning" for row in rows) <= 15


@given(st.lists(st.integers(0, 200), min_size=3, max_size=30))
def test_noise_is_the_deviation_from_the_isotonic_regression(points: list[int]) -> None:
    scores = [value / 100 + CHANCE for value in points] + [1.0]
    fitted = isotonic_regression(scores)
    freedom = max(len(scores) - (len(fitted.blocks) - 1), 1)
    deviation = (float(np.square(np.asarray(scores) - fitted.x).sum()) / freedom) ** 0.5
    assert learning(scores).error == pytest.approx(2**0.5 * deviation, abs=1e-9)
