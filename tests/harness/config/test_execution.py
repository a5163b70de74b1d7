"""How many models train at once, and on what."""

import pytest
import torch

from harness.benchmark.plan import choose_device, choose_precision
from harness.config import execution as machine
from harness.config.execution import ExecutionConfig
from harness.utils.errors import BenchError
from harness.utils.precision import set_products

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize(
    ("asked", "device", "cores", "models", "jobs"),
    [
        (ExecutionConfig(jobs=machine.AUTO), CPU, 2, 20, 2),
        (ExecutionConfig(jobs=machine.AUTO), CPU, 64, 20, machine.MAX_JOBS),
        (ExecutionConfig(jobs=machine.AUTO), CPU, 2, 1, 1),
        (ExecutionConfig(jobs=machine.AUTO), CPU, 2, 0, 1),
        (ExecutionConfig(jobs=machine.AUTO), GPU, 64, 20, 1),
        (ExecutionConfig(jobs=machine.AUTO, devices=2), CPU, 64, 20, 1),
        (ExecutionConfig(jobs=8), GPU, 64, 20, 8),
        (ExecutionConfig(jobs=8), CPU, 2, 3, 3),
    ],
)
def test_auto_jobs_follow_usable_cores(
    monkeypatch: pytest.MonkeyPatch, asked: ExecutionConfig, device: torch.device, cores: int, models: int, jobs: int
) -> None:
    monkeypatch.setattr(machine, "usable_cores", lambda: cores)
    assert asked.jobs_for(models, device) == jobs


def test_half_precision_is_for_gpus_that_compute_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation)
    assert choose_precision("auto", GPU) == "fp32"
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: True)  # noqa: ARG005
    assert choose_precision("auto", GPU) == "bf16"
    assert choose_precision("auto", CPU) == "fp32"


def test_a_gpu_is_chosen_without_putting_anything_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def properties(device: torch.device) -> None:
        if device.index != 1:
            raise AssertionError("Invalid device id")

    monkeypatch.setattr(torch.cuda, "get_device_properties", properties)
    monkeypatch.setattr(torch, "empty", lambda *_, **__: pytest.fail("a tensor was made"))
    assert choose_device("cuda:1") == torch.device("cuda", 1)
    with pytest.raises(BenchError, match=r"cuda:2 .*Invalid device id"):
        choose_device("cuda:2")


def test_a_launcher_may_show_each_process_one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    for name, value in {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with pytest.raises(BenchError, match="--devices 4, but this machine has 1"):
        ExecutionConfig(devices=4).check(GPU)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    ExecutionConfig(devices=4).check(GPU)


@pytest.mark.parametrize(("precision", "tf32"), [("fp32", False), ("bf16", True)])
def test_how_a_gpu_multiplies_is_recorded(precision: str, tf32: bool) -> None:
    places = torch.backends.cuda.matmul, torch.backends.cudnn
    before = [place.allow_tf32 for place in places]
    try:
        set_products(GPU, precision)
        recorded = ExecutionConfig().record(GPU, 1)
    finally:
        for place, value in zip(places, before, strict=True):
            place.allow_tf32 = value
    assert (recorded["tf32"], recorded["cudnn_benchmark"]) == (tf32, False)
    assert "tf32" not in ExecutionConfig().record(CPU, 1)
