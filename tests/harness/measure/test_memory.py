"""Peak memory and energy: measured where they can be, NULL with the reason elsewhere, and weights that have to fit."""

import sys

import numpy as np
import pytest
import torch

from harness.measure import memory
from harness.measure.energy import COSTS, measure_energy
from harness.measure.environment import describe_state
from harness.measure.memory import PeakMemory, counted_parameters, create_within_memory
from harness.utils.errors import BenchError
from tests.harness.conftest import bench
from zoo import model_card

MEBIBYTE = 2**20
_LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


def _measured() -> float:
    with PeakMemory() as peak:
        pass
    if peak.host.value is None:
        pytest.skip(f"this kernel: {peak.host.reason}")
    return peak.host.value


@_LINUX
def test_a_peak_that_is_gone_at_the_end_is_seen() -> None:
    idle = _measured()
    with PeakMemory() as peak:
        block = np.ones(200 * MEBIBYTE, dtype=np.uint8)
        del block
    assert peak.host.unit == "MiB"
    assert idle + 180 < peak.host.value < idle + 260


def test_no_cuda_device_is_null_with_a_reason() -> None:
    with PeakMemory("cpu") as peak:
        pass
    assert peak.device.value is None
    assert peak.device.reason == peak.reserved.reason == "no CUDA device"
    assert peak.quantities("train") == {
        "train_peak_memory_host": peak.host,
        "train_peak_memory_device": peak.device,
        "train_peak_memory_reserved": peak.reserved,
    }


def test_a_failing_block_still_ends() -> None:
    failing = PeakMemory()
    with pytest.raises(KeyError), failing:
        raise KeyError
    assert failing.host.reason != "the block has not ended"
    _measured()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_device_peak() -> None:
    with PeakMemory("cuda") as peak:
        block = torch.ones(64 * MEBIBYTE, dtype=torch.uint8, device="cuda")
        del block
    assert 64 <= peak.device.value < 80
    assert peak.reserved.value >= peak.device.value


SIZES = {"vocab_size": 9, "visual_dim": 4}


@pytest.mark.parametrize("name", ["transformer_base", "updown"])
def test_weights_have_to_fit(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    arguments = {**SIZES, **model_card(name).tiny}
    state = torch.get_rng_state()
    parameters = counted_parameters(name, **arguments)
    assert torch.equal(torch.get_rng_state(), state), "the weights of a seed stay what they are"
    monkeypatch.setattr(memory, "free_memory", lambda _: 4 * parameters)
    assert sum(each.numel() for each in create_within_memory(name, **arguments).parameters()) == parameters
    monkeypatch.setattr(memory, "free_memory", lambda _: 4 * parameters - 1)
    with pytest.raises(BenchError, match=f"{name} would have {parameters:,} parameters"):
        create_within_memory(name, **arguments)


def test_a_command_says_so_before_anything_is_built() -> None:
    result = bench("flops", "--preset", "smoke", "--models", "transformer_base", "--set", "size.d_model=65536")
    assert "parameters, whose weights take" in result.output
    assert result.exit_code == 1


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
