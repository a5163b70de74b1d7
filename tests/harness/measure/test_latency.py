"""Latency: what is timed and how often; margins that hold in nine of ten tries; and noise that is called so."""

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from harness.measure.captioning_costs import Effort, time_captioning
from harness.measure.latency import OtherLoad, Timing, seconds_of
from zoo.captioner import Captioner, Visual
from zoo.decoding import beam_search

CPU, CLOCK = torch.device("cpu"), 100


def test_the_real_search_in_turn_in_evaluation_mode_on_threads(tiny: Captioner, visual: Callable[..., Visual]) -> None:
    seen: list[tuple[Any, ...]] = []

    def spy(model: Captioner, memory: Any) -> Any:
        cast = torch.is_autocast_enabled("cpu")
        seen.append((memory.features.shape[1], model.training, torch.get_num_threads(), cast))
        return beam_search(model, memory, beam_size=3, max_len=9, bos=1, eos=2)

    tiny.train()
    tiny.cell.eval()
    begin = time.perf_counter()
    images, effort = [visual(regions=count) for count in (2, 3)], Effort(repeats=2, energy_seconds=0.0)
    found = time_captioning(tiny, images, spy, effort=effort, threads=2, precision="bf16")
    assert seen == [(regions, False, 2, True) for regions in (2, 3, 2, 3, 2)]
    assert found.costs["latency_threads"].value == found.state["threads"] == 2
    assert 0 < found.costs["latency_median"].value <= time.perf_counter() - begin
    assert (torch.get_num_threads(), tiny.training, tiny.cell.training) == (1, True, False)
    assert all(parameter.grad is None for parameter in tiny.parameters())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_events_time_a_device() -> None:
    weights = torch.randn(2048, 2048, device="cuda")

    def multiply() -> None:
        torch.linalg.matrix_power(weights, 50)

    multiply()
    assert 0.5 < seconds_of(multiply, torch.device("cuda")) / seconds_of(multiply, torch.device("cuda")) < 2


Draw = Callable[[np.random.Generator, int], np.ndarray]


def _correlated(generator: np.random.Generator, count: int, of_the_last: float) -> np.ndarray:
    """Each timing resembles the one before it, as on a processor that warms up and cools down."""
    values = [generator.normal(scale=(1 - of_the_last**2) ** -0.5)]
    for _ in range(count - 1):
        values.append(of_the_last * values[-1] + generator.normal())
    return 1 + 0.02 * np.array(values)


DISTRIBUTIONS: dict[str, Draw] = {
    "normal": lambda generator, count: generator.normal(1, 0.02, count),
    "skewed": lambda generator, count: np.exp(0.2 * generator.standard_normal(count)),
    "long tail": lambda generator, count: 1 + 0.1 * generator.pareto(1.5, count),
    "two levels": lambda generator, count: 1 + 0.2 * (generator.random(count) < 0.5) + generator.normal(0, 0.01, count),
    "interrupted": lambda generator, count: np.where(generator.random(count) < 0.1, 3.0, 1 + 0.01 * generator.random()),
    "correlated": lambda generator, count: _correlated(generator, count, 0.7),
    "strongly correlated": lambda generator, count: _correlated(generator, count, 0.9),
    "processes differ": lambda generator, count: generator.normal(1, 0.01) * generator.normal(1, 0.003, count),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("count", [30, 60])
def test_runs_differ_within_margins_in_nine_of_ten_tries(name: str, count: int) -> None:
    generator, tries, held = np.random.default_rng(0), 200, 0
    for _ in range(tries):
        first, second = (Timing(tuple(DISTRIBUTIONS[name](generator, count))) for _ in range(2))
        held += abs(first.median - second.median) <= max(first.margin, second.margin)
    assert held / tries >= 0.9


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("images", ["of few lengths", "all different"])
def test_margins_hold_too_where_images_take_unlike_long(name: str, images: str) -> None:
    generator, tries, held = np.random.default_rng(0), 30, 0
    for _ in range(tries):
        each = generator.integers(6, 14, 50) / 8 if images == "of few lengths" else generator.uniform(0.5, 1.5, 50)
        first, second = (
            Timing(tuple(np.tile(each, 2) * DISTRIBUTIONS[name](generator, 100)), pieces=50) for _ in range(2)
        )
        held += abs(first.median - second.median) <= max(first.margin or 0.0, second.margin or 0.0)
    assert held / tries >= 0.9


def test_what_images_differ_by_is_no_noise() -> None:
    generator = np.random.default_rng(0)
    steady = Timing(tuple(np.tile(generator.uniform(0.5, 1.5, 50), 2) * generator.normal(1, 0.005, 100)), pieces=50)
    low, high = steady.quartiles
    assert high - low > 0.4
    assert steady.noise() == ()
    assert steady.margin == pytest.approx(0.03 * steady.median)
    assert len(Timing(steady.seconds).noise()) == 1, "taken for the same work, they would be noise"


def test_what_rounds_differ_by_is_noise() -> None:
    generator = np.random.default_rng(0)
    images = generator.uniform(0.5, 1.5, 50)
    [spread] = Timing(tuple(np.tile(images, 2) * generator.normal(1, 0.1, 100)), pieces=50).noise()
    assert "same work" in spread
    assert 11 <= int(spread.split(" %")[0].split()[-1]) <= 16  # 0.135 is what normal noise of 0.1 has
    slower = Timing((*images, *(1.06 * images)), pieces=50)
    [drift] = slower.noise()
    assert "halves differ by 6 %" in drift
    assert slower.margin >= 0.055


def test_margins_are_no_wider_than_they_need_be() -> None:
    generator = np.random.default_rng(0)
    steady = Timing(tuple(generator.normal(1, 0.002, 30)))
    assert steady.margin == pytest.approx(0.03, rel=0.01)  # the luck of a process
    wide = [Timing(tuple(generator.normal(1, 0.1, count))).margin or 0.0 for count in (30, 120, 240)]
    assert wide[0] > 1.5 * wide[1] > 1.5 * wide[2] > 0
    images = np.tile(generator.integers(6, 14, 50) / 8, 2)
    assert 0.03 < (Timing(tuple(images * generator.normal(1, 0.1, 100)), 50).margin or 0.0) < 0.15


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_reads_this_kernel() -> None:
    with OtherLoad() as load:
        time.sleep(0.15)
    assert load.cores >= 0
