"""Latency: what is timed, how often, and that the model and the threads are as before afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from harness.measure import latency
from harness.measure.latency import COSTS, OtherLoad, measure_latency, seconds_of
from harness.utils.errors import BenchError
from zoo.captioner import Captioner, Visual


class Quiet(OtherLoad):
    """A machine that nobody else uses."""

    def noise(self) -> tuple[str, ...]:
        return ()


class _Clock:
    """Stands in for the search and the clock: each search takes the next of the given seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: list[float]) -> None:
        self.now = 0.0
        self.searches: list[dict[str, Any]] = []
        durations = iter(seconds)

        def search(model: Captioner, memory: object, **arguments: Any) -> None:  # noqa: ARG001
            self.searches.append({**arguments, "training": model.training, "threads": torch.get_num_threads()})
            self.now += next(durations)

        monkeypatch.setattr(latency, "beam_search", search)
        monkeypatch.setattr(latency, "time", SimpleNamespace(perf_counter=lambda: self.now))
        monkeypatch.setattr(latency, "OtherLoad", Quiet)


def test_median_spread_and_throughput_of_the_timed_runs(
    tiny: Captioner, visual: Callable[..., Visual], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = _Clock(monkeypatch, [9.0, 0.1, 0.4, 0.2, 0.3, 0.25])
    found = measure_latency(tiny, [visual(4)], beam_size=3, max_len=9, repeats=5, warmup=1).quantities()
    timed = [0.1, 0.4, 0.2, 0.3, 0.25]
    lower, upper = np.percentile(timed, (25, 75))
    assert found["latency_median"].value == pytest.approx(0.25)
    assert found["latency_iqr"].value == pytest.approx(upper - lower)
    assert found["latency_throughput"].value == pytest.approx(4 / 0.25)
    assert found["latency_repeats"].value == 5
    assert found["latency_batch"].value == 4
    assert found["latency_images"].value == 1
    assert {name: quantity.unit for name, quantity in found.items()} == COSTS
    assert (found["latency_median"].low, found["latency_median"].high) == pytest.approx((lower, upper))
    assert (found["latency_throughput"].low, found["latency_throughput"].high) == pytest.approx((4 / upper, 4 / lower))
    assert found["latency_margin"].value == pytest.approx(2**0.5 * 0.15)
    assert found["latency_noisy"].value == 1  # quartiles of 40 % of the median
    assert clock.searches[0]["beam_size"] == 3
    assert clock.searches[0]["max_len"] == 9


def test_images_take_turns_and_length_is_not_noise(
    tiny: Captioner, visual: Callable[..., Visual], monkeypatch: pytest.MonkeyPatch
) -> None:
    images = [visual(regions=regions) for regions in range(1, 31)]
    seen: list[int] = []
    encode = type(tiny).encode
    monkeypatch.setattr(
        type(tiny), "encode", lambda model, one: (seen.append(one.features.shape[1]), encode(model, one))[1]
    )
    each = np.linspace(0.1, 0.3, 30)
    _Clock(monkeypatch, [9.0] * 3 + [*each, *each])
    found = measure_latency(tiny, images, beam_size=3, max_len=9, repeats=2)
    assert seen == [*range(1, 31), *range(1, 31), 1, 2, 3]
    costs = {name: cost.value for name, cost in found.quantities().items()}
    assert (costs["latency_images"], costs["latency_repeats"], costs["latency_batch"]) == (30, 60, 1)
    assert costs["latency_median"] == pytest.approx(0.2)
    assert costs["latency_noisy"] == 0
    assert costs["latency_iqr"] > 0.09
    assert costs["latency_margin"] == pytest.approx(0.03 * 0.2)


def test_a_few_runs_have_no_margin(
    tiny: Captioner, visual: Callable[..., Visual], monkeypatch: pytest.MonkeyPatch
) -> None:
    _Clock(monkeypatch, [5.0] * 9)
    costs = measure_latency(tiny, [visual()] * 2, beam_size=1, max_len=5, repeats=2).quantities()
    assert costs["latency_margin"].reason == "fewer than 5 timed runs"
    assert costs["latency_noisy"].value == 0


def test_evaluation_mode_and_threads_are_set_and_restored(
    tiny: Captioner, visual: Callable[..., Visual], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = _Clock(monkeypatch, [0.1] * 3)
    tiny.train()
    tiny.cell.eval()
    found = measure_latency(tiny, [visual()], beam_size=2, max_len=5, repeats=2, warmup=1, threads=2)
    assert [(search["training"], search["threads"]) for search in clock.searches] == [(False, 2)] * 3
    assert found.threads == 2
    assert torch.get_num_threads() == 1
    assert tiny.training
    assert not tiny.cell.training


def test_really_times_the_real_search(tiny: Captioner, visual: Callable[..., Visual]) -> None:
    begin = time.perf_counter()
    found = measure_latency(tiny, [visual(2)], beam_size=3, max_len=10, repeats=3, warmup=1)
    elapsed = time.perf_counter() - begin
    assert 0 < found.timing.median <= elapsed
    assert found.batch == 2
    assert found.threads == 1
    assert all(parameter.grad is None for parameter in tiny.parameters())


def test_one_run_gives_no_spread(tiny: Captioner, visual: Callable[..., Visual]) -> None:
    with pytest.raises(BenchError, match="no spread"):
        measure_latency(tiny, [visual()], beam_size=1, max_len=5, repeats=1)


def test_half_precision_is_asked_for(
    tiny: Captioner, visual: Callable[..., Visual], monkeypatch: pytest.MonkeyPatch
) -> None:
    cast: list[bool] = []
    monkeypatch.setattr(latency, "beam_search", lambda *_, **__: cast.append(torch.is_autocast_enabled("cpu")))
    measure_latency(tiny, [visual()], beam_size=1, max_len=5, repeats=2, precision="bf16")
    measure_latency(tiny, [visual()], beam_size=1, max_len=5, repeats=2)
    assert cast == [True] * 3 + [False] * 3


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_events_time_a_device() -> None:
    weights = torch.randn(2048, 2048, device="cuda")

    def multiply() -> None:
        torch.linalg.matrix_power(weights, 50)

    multiply()
    assert 0.5 < seconds_of(multiply, torch.device("cuda")) / seconds_of(multiply, torch.device("cuda")) < 2
