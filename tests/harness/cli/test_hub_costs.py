"""`bench flops` and `bench cost measure` for checkpoints of `hf:`, beside models of the zoo."""

import csv
import io
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import harness.measure.isolated
from harness.measure.isolated import BenchmarkJob, BenchmarkResult
from tests.harness.conftest import bench, bench_ok
from tests.harness.inference.hub_families import write_family


@pytest.fixture(scope="module")
def llava(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_family("llava", tmp_path_factory.mktemp("hub") / "llava")


def test_checkpoints_have_a_table_of_their_own(llava: Path) -> None:
    shown = bench_ok("flops", "--models", f"hf:{llava},blind", "--caption-length", 4, "--position", 3)
    assert max(map(len, shown.output.splitlines())) <= 80
    assert "blind" in shown.output.split("hf:llava")[0]
    for said in ("Vision  Prefill  Step 3", "picture of 640 x 480"):
        assert said in " ".join(shown.output.split("\n")) or said in shown.output
    exact = bench("flops", "--models", f"hf:{llava}", "--caption-length", 4, "--image-size", 30, "--format", "csv")
    [row] = csv.DictReader(io.StringIO(exact.output))
    assert row["model"] == "hf:llava"
    assert int(row["greedy_mac"]) < int(row["beam_mac"])
    assert row["training_mac"] == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("flops", "--models", "blind", "--hub", "prompt=photo"), "--hub prompt is for models of hf:"),
        (("flops", "--models", "HF", "--operators"), "--operators is not for models of hf:"),
        (("flops", "--models", "blind", "--image-size", 64), "--image-size is about the backbone"),
        (("flops", "--models", "hf:/nowhere/at/all"), "there is no such folder"),
        (("cost", "measure", "--models", "blind", "--hub", "attention=eager"), "--hub attention is for models of hf:"),
        (("cost", "measure", "--models", "HF", "--hub", "attention=fast"), "--hub attention=fast is unknown"),
    ],
)
def test_what_does_not_fit_is_refused(words: tuple[object, ...], said: str, llava: Path) -> None:
    refused = bench(*(f"hf:{llava}" if word == "HF" else word for word in words))
    assert said in str(refused.exception)


def test_time_and_memory_are_those_of_the_checkpoint_itself(llava: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[BenchmarkJob] = []

    def here(job: BenchmarkJob) -> tuple[list[BenchmarkResult], dict[str, Any]]:
        asked.append(job)
        return import_module(job.answered_by).measure(job), {}

    monkeypatch.setattr(harness.measure.isolated, "run_isolated", here)
    short = ("--batch", "1,2", "--beam", 2, "--caption-length", 2, "--repeats", 2, "--energy-seconds", 0)
    shown = bench_ok("cost", "measure", "--models", f"hf:{llava}", *short, "--precision", "bf16", "--device", "cpu")
    assert [line.split()[:3] for line in shown.output.splitlines() if "hf:llava" in line] == [
        ["hf:llava", "1", "2"],
        ["hf:llava", "2", "2"],
    ]
    assert "from the processor's output" in " ".join(shown.output.split())
    [job] = asked
    assert job.checkpoint is not None
    assert job.checkpoint["where"] == str(llava)
    assert callable(import_module(job.answered_by).measure)
