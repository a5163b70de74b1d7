"""Energy and the state of a device: from its counter where there is one, NULL with the reason where there is none."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from harness.measure import energy
from harness.measure.energy import COSTS, measure_energy
from harness.measure.environment import describe_state

CUDA = torch.device("cuda", 0)
NEEDS_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def test_energy_of_an_image_and_above_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """A meter that draws 50 W idle and 250 W at work, on a clock that sleep and work move."""
    meter = SimpleNamespace(now=0.0, joules=1000.0)

    def draw(seconds: float, watts: float = 50) -> None:
        meter.now += seconds
        meter.joules += seconds * watts

    @contextmanager
    def opened(_: torch.device) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(energy=lambda: meter.joules)

    monkeypatch.setattr(energy, "nvml_device", opened)
    monkeypatch.setattr(energy, "time", SimpleNamespace(perf_counter=lambda: meter.now, sleep=draw))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: None)
    found = measure_energy(lambda: draw(0.5, 250), 16, CUDA, window_s=4.0)
    assert found["idle_power"].value == pytest.approx(50)
    assert found["energy_per_image"].value == pytest.approx(0.5 * 250 / 16)
    assert found["energy_per_image_above_idle"].value == pytest.approx(0.5 * 200 / 16)
    assert {name: quantity.unit for name, quantity in found.items()} == COSTS


@pytest.mark.parametrize(
    ("device", "window", "reason"),
    [("cpu", 1.0, "no CUDA device"), ("cuda:0", 0.0, "energy_seconds"), ("cuda:0", 1.0, "--extra energy")],
)
def test_null_with_the_reason(monkeypatch: pytest.MonkeyPatch, device: str, window: float, reason: str) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    found = measure_energy(lambda: None, 1, torch.device(device), window_s=window)
    assert set(found) == set(COSTS)
    assert all(quantity.value is None and reason in str(quantity.reason) for quantity in found.values())


def test_a_machine_without_a_device_has_a_load_alone() -> None:
    assert set(describe_state(torch.device("cpu"))) == {"load_average"}


@NEEDS_CUDA
def test_a_device_tells_its_state_and_its_energy() -> None:
    pytest.importorskip("pynvml")
    weights = torch.randn(2048, 2048, device="cuda")
    state = describe_state(CUDA)
    assert state["clock_mhz"] > 0
    assert state["power_limit_w"] > 0
    found = measure_energy(lambda: torch.linalg.matrix_power(weights, 50), 1, CUDA, window_s=2.0)
    assert found["energy_per_image"].value > found["energy_per_image_above_idle"].value
