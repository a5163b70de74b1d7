"""The parts of a GPU's check: on the processor at toy sizes, and with `-m gpu` on a GPU."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.benchmark import gpu_check
from harness.benchmark.gpu_check import PARTS, Report, reports_of, run_part, save
from harness.training.distributed import Distributed
from harness.training.trainer import Trainer
from tests.harness.conftest import bench
from zoo.decoding import greedy

NUMBERS = {
    "equal": {"transformer_base", "updown"},
    "waits": {"transformer_base", "updown"},
    "speed": {"transformer_base", "updown", "test_resnet fp32", "test_resnet bf16"},
    "replayed": {"transformer_base", "updown"},
    "passes": {
        f"{name} {kind}" for name in ("transformer_base", "updown") for kind in ("cross_entropy", "self_critical")
    },
    "memory": {"parts", "gradient"},
    "collective": set(),
    "energy": {"energy_per_image", "energy_per_image_above_idle", "idle_power"},
    "resume": {"weights"},
}


@pytest.mark.parametrize("part", PARTS)
def test_parts_work_at_toy_sizes(part: str) -> None:
    report = run_part(part, "cpu")
    assert (report.state, report.problems) == ("works", [])
    assert set(report.numbers) == NUMBERS[part]
    assert report.numbers.get("parts", 4) == 4
    assert report.numbers.get("weights", 0.0) == 0.0


@pytest.mark.gpu
@pytest.mark.parametrize("part", PARTS)
def test_parts_work_on_a_gpu(part: str) -> None:
    report = run_part(part, "cuda")
    assert (report.state, report.problems) == ("works", [])


@pytest.mark.parametrize(
    ("part", "where", "name", "fault"),
    [
        ("equal", gpu_check, "_passes", lambda model, batch, right=gpu_check._passes: right(model.train(), batch)),
        ("collective", Distributed, "all_reduce_gradients", lambda _, weights: [each.grad.mul_(2) for each in weights]),
        ("memory", gpu_check, "_Small", lambda *_: None),
        (
            "replayed",
            gpu_check,
            "_SEARCHES",
            {"greedy": lambda *given, to_the_end, **words: greedy(*given, **words | {"max_len": 3 - to_the_end})},
        ),
        ("resume", Trainer, "_restore_generators", lambda *_: None),
    ],
)
def test_each_fault_shows(part: str, where: Any, name: str, fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(where, name, fault)
    report = run_part(part, "cpu")
    assert report.state == "differs"
    assert report.problems


def test_an_error_and_a_late_part_are_their_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(gpu_check, "measure_energy", lambda *_, **__: 1 / 0)
    failed = run_part("energy", "cpu")
    assert (failed.state, failed.problems[0]) == ("failed", "ZeroDivisionError: division by zero")
    monkeypatch.setattr(gpu_check, "PARTS", {"energy": (gpu_check.energy, 0.01), "resume": (gpu_check.resume, -1.0)})
    told: list[Report] = []
    found = reports_of("cpu", told.append)
    assert found == told
    assert [report.state for report in found] == ["failed", "not run"]
    save([failed, *found], "cpu", tmp_path / "gpu.json")
    written = json.loads((tmp_path / "gpu.json").read_text())
    assert [part["state"] for part in written["parts"]] == ["failed", "failed", "not run"]
    assert "| energy | failed |" in (tmp_path / "gpu.md").read_text()


def test_without_a_gpu_the_command_says_what_it_would_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    result = bench("doctor", "--gpu", "--out", tmp_path / "gpu.json")
    assert result.exit_code != 0
    assert all(f"{part}: not run" in result.stdout for part in PARTS)
    assert not (tmp_path / "gpu.json").exists()
