"""Latency: what is timed and how often; margins that hold in nine of ten tries; and noise that is called so."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from harness.measure import captioning_costs, latency
from harness.measure.captioning_costs import Effort, time_captioning
from harness.measure.latency import COSTS, OtherLoad, Timing, seconds_of, time_work
from harness.utils.errors import BenchError
from zoo.captioner import Captioner, Visual

CPU, CLOCK = torch.device("cpu"), 100
SEARCH = {"beam_size": 3, "max_len": 9, "bos": 1, "eos": 2}


class Quiet(OtherLoad):
    """A machine that nobody else uses."""

    def noise(self) -> tuple[str, ...]:
        return ()


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[float]], Callable[[], None]]:
    """Work on a clock that only it moves, by the given seconds in turn."""
    now = [0.0]
    monkeypatch.setattr(latency, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    monkeypatch.setattr(latency, "OtherLoad", Quiet)

    def taking(seconds: list[float]) -> Callable[[], None]:
        durations = iter(seconds)

        def caption() -> None:
            now[0] += next(durations)

        return caption

    return taking


def test_median_spread_and_throughput_of_the_timed_runs(work: Callable[[list[float]], Callable[[], None]]) -> None:
    timed = [0.1, 0.4, 0.2, 0.3, 0.25]
    found = time_work(work([9.0, *timed]), 1, CPU, batch=4, repeats=5).quantities()
    lower, upper = np.percentile(timed, (25, 75))
    assert found["latency_median"].value == pytest.approx(0.25)
    assert found["latency_iqr"].value == pytest.approx(upper - lower)
    assert found["latency_throughput"].value == pytest.approx(4 / 0.25)
    counts = {name: found[f"latency_{name}"].value for name in ("repeats", "batch", "images", "noisy")}
    assert counts == {"repeats": 5, "batch": 4, "images": 1, "noisy": 1}, "quartiles of 40 % of the median"
    assert {name: quantity.unit for name, quantity in found.items()} == COSTS
    assert (found["latency_median"].low, found["latency_median"].high) == pytest.approx((lower, upper))
    assert (found["latency_throughput"].low, found["latency_throughput"].high) == pytest.approx((4 / upper, 4 / lower))
    assert found["latency_margin"].value == pytest.approx(2**0.5 * 0.15)


def test_images_take_turns_and_length_is_not_noise(work: Callable[[list[float]], Callable[[], None]]) -> None:
    each = np.linspace(0.1, 0.3, 30)
    found = time_work(work([9.0] * 3 + [*each, *each]), 30, CPU, batch=1, repeats=2).quantities()
    costs = {name: cost.value for name, cost in found.items()}
    assert (costs["latency_images"], costs["latency_repeats"], costs["latency_batch"]) == (30, 60, 1)
    assert costs["latency_median"] == pytest.approx(0.2)
    assert costs["latency_noisy"] == 0
    assert costs["latency_margin"] == pytest.approx(0.03 * 0.2)


def test_a_few_runs_have_no_margin_and_one_no_spread(work: Callable[[list[float]], Callable[[], None]]) -> None:
    costs = time_work(work([5.0] * 9), 2, CPU, batch=1, repeats=2).quantities()
    assert costs["latency_margin"].reason == "fewer than 5 timed runs"
    assert costs["latency_noisy"].value == 0
    with pytest.raises(BenchError, match="1 timed runs"):
        time_work(work([]), 1, CPU, batch=1, repeats=1)


def test_the_real_search_in_turn_in_evaluation_mode_on_threads(
    tiny: Captioner, visual: Callable[..., Visual], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[Any, ...]] = []
    search = captioning_costs.beam_search

    def spy(model: Captioner, memory: Any, **settings: Any) -> Any:
        cast = torch.is_autocast_enabled("cpu")
        seen.append((memory.features.shape[1], model.training, torch.get_num_threads(), settings["beam_size"], cast))
        return search(model, memory, **settings)

    monkeypatch.setattr(captioning_costs, "beam_search", spy)
    tiny.train()
    tiny.cell.eval()
    begin = time.perf_counter()
    images, effort = [visual(regions=count) for count in (2, 3)], Effort(repeats=2, energy_seconds=0.0)
    found = time_captioning(tiny, images, **SEARCH, effort=effort, threads=2, precision="bf16")
    assert seen == [(regions, False, 2, 3, True) for regions in (2, 3, 2, 3, 2)]
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
    generator, tries, held = np.random.default_rng(0), 400, 0
    for _ in range(tries):
        first, second = (Timing(tuple(DISTRIBUTIONS[name](generator, count))) for _ in range(2))
        assert first.margin is not None
        assert second.margin is not None
        held += abs(first.median - second.median) <= max(first.margin, second.margin)
    assert held / tries >= 0.9


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("images", ["of few lengths", "all different"])
def test_margins_hold_too_where_images_take_unlike_long(name: str, images: str) -> None:
    generator, tries, held = np.random.default_rng(0), 60, 0
    for _ in range(tries):
        each = generator.integers(6, 14, 50) / 8 if images == "of few lengths" else generator.uniform(0.5, 1.5, 50)
        first, second = (
            Timing(tuple(np.tile(each, 2) * DISTRIBUTIONS[name](generator, 100)), pieces=50) for _ in range(2)
        )
        held += abs(first.median - second.median) <= max(first.margin or 0.0, second.margin or 0.0)
    assert held / tries >= 0.9


def test_what_images_differ_by_is_no_noise() -> None:
    generator = np.random.default_rng(0)
    images = generator.uniform(0.5, 1.5, 50)
    steady = Timing(tuple(np.tile(images, 2) * generator.normal(1, 0.005, 100)), pieces=50)
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
    assert slower.margin is not None
    assert slower.margin >= 0.055


def test_margins_are_no_wider_than_they_need_be() -> None:
    generator = np.random.default_rng(0)
    steady = Timing(tuple(generator.normal(1, 0.002, 30)))
    assert steady.margin == pytest.approx(0.03, rel=0.01)  # the luck of a process
    wide = [Timing(tuple(generator.normal(1, 0.1, count))).margin or 0.0 for count in (30, 120, 240)]
    assert wide[0] > 1.5 * wide[1] > 1.5 * wide[2] > 0
    images = np.tile(generator.integers(6, 14, 50) / 8, 2)
    assert 0.03 < (Timing(tuple(images * generator.normal(1, 0.1, 100)), 50).margin or 0.0) < 0.15


def test_spread_and_drift_are_noise_with_their_numbers() -> None:
    [spread] = Timing((0.8, 1.2) * 16).noise()
    assert "40 % of the median apart" in spread
    [drift] = Timing((1.0,) * 20 + (1.08,) * 20).noise()
    assert "halves differ by 8 %" in drift
    assert len(Timing((1.0,) * 15 + (2.0,) * 15).noise()) == 2


@pytest.fixture
def moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Sets the machine's clocks: wall-clock seconds, and processor seconds of all and of this process."""
    stat = tmp_path / "stat"
    monkeypatch.setattr(latency.os, "sysconf", lambda _: CLOCK)

    def at(*, clock: float, machine: float, own: float) -> Path:
        busy = int(machine * CLOCK)
        stat.write_text(f"cpu  {busy - 20} 10 4 999999 7 3 2 1 0 0\ncpu0 1 2 3\n", encoding="ascii")
        monkeypatch.setattr(latency.time, "perf_counter", lambda: clock)
        monkeypatch.setattr(latency.os, "times", lambda: (own, 0.0, 0.0, 0.0, 0.0))
        return stat

    return at


@pytest.mark.parametrize(
    ("after", "cores", "noisy"),
    [
        ({"clock": 14.0, "machine": 110.0, "own": 9.0}, (10 - 4) / 4, True),
        ({"clock": 14.0, "machine": 108.1, "own": 13.0}, 0.025, False),
        ({"clock": 10.05, "machine": 100.2, "own": 5.0}, None, False),  # too short for the kernel's hundredths
    ],
)
def test_what_the_machine_did_beyond_this_process_is_noise(
    moment: Callable[..., Path], after: dict[str, float], cores: float | None, noisy: bool
) -> None:
    with OtherLoad(stat=moment(clock=10.0, machine=100.0, own=5.0)) as load:
        moment(**after)
    assert load.cores == (None if cores is None else pytest.approx(cores))
    assert bool(load.noise()) == noisy


@pytest.mark.parametrize("content", [None, "", "cpu 1 2", "cpu a b c d e f g h"])
def test_a_kernel_that_does_not_tell(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "stat").write_text(content, encoding="ascii")
    with OtherLoad(stat=tmp_path / "stat") as load:
        pass
    assert load.cores is None


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_reads_this_kernel() -> None:
    with OtherLoad() as load:
        time.sleep(0.15)
    assert load.cores is not None
    assert load.cores >= 0
