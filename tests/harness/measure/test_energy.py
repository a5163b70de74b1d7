"""Energy and the state of a device: from its counter where there is one, NULL with the reason where there is none."""

import sys

import pytest
import torch

from harness.measure.energy import COSTS, measure_energy
from harness.measure.environment import describe_state

CUDA = torch.device("cuda", 0)
NEEDS_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize(
    ("device", "window", "reason"),
    [("cpu", 1.0, "no CUDA device"), ("cuda:0", 0.0, "energy_seconds"), ("cuda:0", 1.0, "--extra energy")],
)
def test_null_with_the_reason(monkeypatch: pytest.MonkeyPatch, device: str, window: float, reason: str) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    found = measure_energy(lambda: None, 1, torch.device(device), window_s=window)
    assert set(found) == set(COSTS)
    assert all(quantity.value is None and reason in str(quantity.reason) for quantity in found.values())


@NEEDS_CUDA
def test_a_device_tells_its_state_and_its_energy() -> None:
    pytest.importorskip("pynvml")
    weights = torch.randn(2048, 2048, device="cuda")
    state = describe_state(CUDA)
    assert state["clock_mhz"] > 0
    assert state["power_limit_w"] > 0
    found = measure_energy(lambda: torch.linalg.matrix_power(weights, 50), 1, CUDA, window_s=2.0)
    assert found["energy_per_image"].value > found["energy_per_image_above_idle"].value
