"""Energy and the state of a device, with a stand-in for NVIDIA's library; NULL with the reason where there is none."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness.measure import energy
from harness.measure.energy import COSTS, measure_energy
from harness.measure.environment import describe_state

CUDA = torch.device("cuda", 0)


class _Library:
    """Draws 50 W idle and 250 W at work on a clock that the test's work moves on."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    class NVMLError(Exception):
        pass

    class NVMLLibraryMismatchError(Exception):
        pass

    def __init__(self) -> None:
        self.now, self.joules, self.opened = 0.0, 1000.0, 0

    def pass_time(self, seconds: float, watts: float) -> None:
        self.now += seconds
        self.joules += seconds * watts

    def nvmlInit(self) -> None:  # noqa: N802
        self.opened += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.opened -= 1

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        assert uuid == "GPU-1234"
        return "handle"

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:  # noqa: N802, ARG002
        return int(self.joules * 1000)

    def nvmlDeviceGetClockInfo(self, handle: str, clock: int) -> int:  # noqa: N802, ARG002
        return 1400 + clock

    def nvmlDeviceGetMaxClockInfo(self, handle: str, clock: int) -> int:  # noqa: N802, ARG002
        return 1980

    def nvmlDeviceGetTemperature(self, handle: str, sensor: int) -> int:  # noqa: N802, ARG002
        raise self.NVMLError("Not Supported")

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: str) -> int:  # noqa: N802, ARG002
        return 700_000

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[int]:  # noqa: N802, ARG002
        return [1, 2]


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> _Library:
    found = _Library()
    monkeypatch.setitem(sys.modules, "pynvml", found)  # type: ignore[arg-type]
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(uuid="1234"))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: None)
    monkeypatch.setattr(torch._C, "_cuda_hasPrimaryContext", lambda _: True)
    clock = SimpleNamespace(perf_counter=lambda: found.now, sleep=lambda seconds: found.pass_time(seconds, 50))
    monkeypatch.setattr(energy, "time", clock)
    return found


def test_energy_of_an_image_and_above_idle(library: _Library) -> None:
    found = measure_energy(lambda: library.pass_time(0.5, 250), 16, CUDA, window_s=4.0)
    assert found["idle_power"].value == pytest.approx(50)
    assert found["energy_per_image"].value == pytest.approx(0.5 * 250 / 16)
    assert found["energy_per_image_above_idle"].value == pytest.approx(0.5 * 200 / 16)
    assert {name: quantity.unit for name, quantity in found.items()} == COSTS
    assert library.opened == 0


def _reasons(found: dict[str, Any]) -> set[str]:
    assert set(found) == set(COSTS)
    assert all(quantity.value is None for quantity in found.values())
    return {quantity.reason for quantity in found.values()}


def test_null_with_the_reason(library: _Library, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _reasons(measure_energy(lambda: None, 1, torch.device("cpu"), window_s=1.0)) == {"no CUDA device"}
    assert "energy_seconds" in _reasons(measure_energy(lambda: None, 1, CUDA, window_s=0.0)).pop()

    def refuse(*_: object) -> None:
        raise library.NVMLError("Driver Not Loaded")

    monkeypatch.setattr(_Library, "nvmlDeviceGetTotalEnergyConsumption", refuse)
    assert "Driver Not Loaded" in _reasons(measure_energy(lambda: None, 1, CUDA, window_s=1.0)).pop()
    monkeypatch.setattr(_Library, "nvmlDeviceGetHandleByUUID", refuse)
    assert "does not know this device" in _reasons(measure_energy(lambda: None, 1, CUDA, window_s=1.0)).pop()
    assert library.opened == 0
    monkeypatch.setattr(_Library, "nvmlInit", refuse)
    assert "NVML does not start" in _reasons(measure_energy(lambda: None, 1, CUDA, window_s=1.0)).pop()
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "uv sync --inexact --extra energy" in _reasons(measure_energy(lambda: None, 1, CUDA, window_s=1.0)).pop()


def test_state_of_a_device(library: _Library, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001
    state = describe_state(CUDA)
    assert state["clock_mhz"] == 1401
    assert state["memory_clock_mhz"] == 1402
    assert state["power_limit_w"] == 700
    assert state["temperature_c"] is None
    assert state["other_processes"] == 1
    monkeypatch.setattr(torch._C, "_cuda_hasPrimaryContext", lambda _: False)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    assert describe_state(CUDA)["other_processes"] == 2, "this process has nothing on the device yet"
    assert set(describe_state(torch.device("cpu"))) == {"load_average"}


def test_a_driver_too_old_for_a_question_leaves_it_unanswered(
    library: _Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise library.NVMLLibraryMismatchError("Unversioned function called")

    monkeypatch.setattr(_Library, "nvmlDeviceGetComputeRunningProcesses", refuse)
    assert describe_state(CUDA)["other_processes"] is None
