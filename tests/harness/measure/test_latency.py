"""Latency: what is timed, how often, and that the model and the threads are as before afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from harness.errors import BenchError
from harness.measure import latency
from harness.measure.latency import measure_latency
from zoo.captioner import Captioner, Visual


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


def test_median_spread_and_throughput_of_the_timed_runs(
    tiny: Captioner, visual: Callable[..., Visual], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = _Clock(monkeypatch, [9.0, 0.1, 0.4, 0.2, 0.3, 0.25])
    found = measure_latency(tiny, visual(4), beam_size=3, max_len=9, repeats=5, warmup=1, budget_s=100.0)
    timed = [0.1, 0.4, 0.2, 0.3, 0.25]
    lower, upper = np.percentile(timed, (25, 75))
    assert found["latency_median"].value == pytest.approx(0.25)
    assert found["latency_iqr"].value == pytest.approx(upper - lower)
    assert found["latency_throughput"].value == pytest.approx(4 / 0.25)
    assert found["latency_repeats"].value == 5
    assert found["latency_batch"].value == 4
    assert [found[name].unit for name in ("latency_median", "latency_throughput")] == ["s", "images/s"]
    assert clock.searches[0]["beam_size"] == 3
    assert clock.searches[0]["max_len"] == 9


def test_the_budget_ends_the_runs_but_never_before_the_second(
    tiny: Captioner, visual: Callable[..., Visual], monkeypatch: pytest.MonkeyPatch
) -> None:
    _Clock(monkeypatch, [5.0] * 9)
    slow = measure_latency(tiny, visual(), beam_size=1, max_len=5, repeats=9, warmup=1, budget_s=2.0)
    assert slow["latency_repeats"].value == 2
    _Clock(monkeypatch, [0.5] * 9)
    middling = measure_latency(tiny, visual(), beam_size=1, max_len=5, repeats=8, warmup=1, budget_s=2.0)
    assert middling["latency_repeats"].value == 3


def test_runs_in_evaluation_mode_on_the_named_threads_and_puts_both_back(
    tiny: Captioner, visual: Callable[..., Visual], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = _Clock(monkeypatch, [0.1] * 3)
    tiny.train()
    tiny.cell.eval()
    found = measure_latency(tiny, visual(), beam_size=2, max_len=5, repeats=2, warmup=1, threads=2)
    assert [(search["training"], search["threads"]) for search in clock.searches] == [(False, 2)] * 3
    assert found["latency_threads"].value == 2
    assert torch.get_num_threads() == 1
    assert tiny.training
    assert not tiny.cell.training


def test_really_times_the_real_search(tiny: Captioner, visual: Callable[..., Visual]) -> None:
    begin = time.perf_counter()
    found = measure_latency(tiny, visual(2), beam_size=3, max_len=10, repeats=3, warmup=1)
    elapsed = time.perf_counter() - begin
    median = found["latency_median"].value
    assert median is not None
    assert 0 < median <= elapsed
    assert found["latency_threads"].value == 1
    assert all(parameter.grad is None for parameter in tiny.parameters())


def test_one_run_gives_no_spread(tiny: Captioner, visual: Callable[..., Visual]) -> None:
    with pytest.raises(BenchError, match="no spread"):
        measure_latency(tiny, visual(), beam_size=1, max_len=5, repeats=1)
