"""The parts of a GPU's check: on the processor at toy sizes, and with `-m gpu` on a GPU."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.benchmark import gpu_check
from harness.benchmark.gpu_check import PARTS, run_part
from harness.training.distributed import Distributed
from harness.training.trainer import Trainer
from harness.utils.errors import BenchError
from tests.harness.conftest import bench_ok, bench_or_raise
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
            {"greedy": lambda *given, early_stop, **words: greedy(*given, **words | {"max_len": 2 + early_stop})},
        ),
        ("resume", Trainer, "_restore_generators", lambda *_: None),
    ],
)
def test_each_fault_shows(part: str, where: Any, name: str, fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(where, name, fault)
    report = run_part(part, "cpu")
    assert report.state == "differs"
    assert report.problems


def test_an_error_of_a_part_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PARTS, "resume", lambda _: 1 / 0)
    report = run_part("resume", "cpu")
    assert (report.state, report.problems[0]) == ("failed", "ZeroDivisionError: division by zero")


def test_the_command_prints_speeds_and_writes_all_numbers(tmp_path: Path) -> None:
    result = bench_ok("doctor", "--gpu", "--device", "cpu", "--out", tmp_path / "gpu.json")
    written = json.loads((tmp_path / "gpu.json").read_text())
    assert [part["part"] for part in written["parts"]] == list(PARTS)
    assert {part["state"] for part in written["parts"]} == {"works"}
    rows = [line.split() for line in result.stdout.splitlines() if line.startswith(("transformer_base", "updown"))]
    assert len(rows) == 6, "training, rewards and search of two models"


def test_without_a_gpu_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(BenchError, match="no GPU"):
        bench_or_raise("doctor", "--gpu", "--out", tmp_path / "gpu.json")
    assert not (tmp_path / "gpu.json").exists()
