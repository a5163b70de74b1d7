"""`bench cost` as a user types it, and `bench flops` and `bench cost measure` for checkpoints of `hf:`."""

import csv
import io
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import harness.measure.isolated
from harness.measure import isolated as apart
from harness.measure.isolated import BenchmarkJob, BenchmarkResult
from harness.utils.errors import BenchError
from results import Quantity
from tests.harness.conftest import bench, bench_ok

ENVIRONMENT = {
    "cpu": "A processor",
    "device": {"type": "cpu"},
    "threads": 2,
    "pinned_cores": [0, 1],
    "packages": {"torch": "2.15"},
    "state": {"load_average": 0.1, "other_processes": 3},
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[BenchmarkJob]:
    """Questions that were asked; the answers are made up, and `m2` cannot be measured."""
    questions: list[BenchmarkJob] = []

    def answer(question: BenchmarkJob) -> tuple[list[BenchmarkResult], dict[str, Any]]:
        questions.append(question)
        if question.model == "m2":
            raise BenchError("m2 could not be measured: out of memory")
        of_device = ("caption_peak_memory_device", "caption_peak_memory_reserved", "energy_per_image")
        return [
            BenchmarkResult(
                question.model,
                batch,
                width,
                precision,
                {
                    "latency_median": Quantity(0.0123 * batch * width, unit="s", low=0.012, high=0.0131),
                    "latency_margin": Quantity(0.0004, unit="s"),
                    "latency_throughput": Quantity(81.3 / width, unit="images/s"),
                    "latency_noisy": Quantity(float(batch == 4)),
                    "caption_peak_memory_host": Quantity(600.0, unit="MiB"),
                    **dict.fromkeys(of_device, Quantity(None, "no CUDA device")),
                },
                {"noise": ["other processes kept 1.2 of 2 cores busy"] if batch == 4 else []},
            )
            for precision in question.precisions
            for batch in question.batches
            for width in question.widths
        ], ENVIRONMENT

    monkeypatch.setattr(apart, "run_isolated", answer)
    return questions


MEASURE = ["cost", "measure", "--batch", "1,4", "--beam", "1,3", "--device", "cpu"]


def test_a_table_with_noise_and_reasons(asked: list[BenchmarkJob]) -> None:
    result = bench_ok(*MEASURE, "--models", "updown,show_tell", "--threads", "2")
    assert max(len(line) for line in result.stdout.splitlines()) <= 80
    rows = [line.split() for line in result.stdout.splitlines() if line.split()[:1] in (["updown"], ["show_tell"])]
    assert rows[0] == ["updown", "1", "1", "12.3", "0.400", "12.0-13.1", "81.3", "600"]
    assert [row[3][0] == "~" for row in rows] == [False, False, True, True] * 2
    said = " ".join(result.stdout.split())
    assert "A processor, 2 threads on cores 0,1" in said
    assert "4 of 8 times" in said
    assert "energy_per_image: no CUDA device" in said
    assert "3 other processes" in said
    assert [question.model for question in asked] == ["updown", "show_tell"]
    assert (asked[0].threads, asked[0].effort.repeats) == (2, 30)


def test_everything_is_kept_and_a_failure_is_told(asked: list[BenchmarkJob], tmp_path: Path) -> None:
    out = tmp_path / "costs.json"
    command = [*MEASURE, "--models", "m2,updown", "--preset", "quick", "--set", "parameters=null", "--out", str(out)]
    result = bench(*command, "--precision", "fp32,bf16", "--format", "csv")
    assert result.exit_code == 1
    assert "failed: m2: m2 could not be measured: out of memory" in result.stderr
    lines = list(csv.DictReader(io.StringIO(result.stdout)))
    assert len(lines) == 2 * 4 * 8
    assert {line["model"] for line in lines} == {"updown"}
    assert next(line for line in lines if line["cost"] == "energy_per_image")["reason"] == "no CUDA device"
    kept = json.loads(out.read_text(encoding="utf-8"))
    assert len(kept["answers"]) == 8
    assert kept["failures"] == {"m2": "m2 could not be measured: out of memory"}
    assert (kept["environment"], asked[1].arguments["d_model"]) == (ENVIRONMENT, 64)


@pytest.mark.parametrize(
    ("option", "value"), [("--batch", "1,x"), ("--beam", "0"), ("--precision", "fp8"), ("--models", ",")]
)
def test_wrong_options_are_refused_by_name(asked: list[BenchmarkJob], option: str, value: str) -> None:
    result = bench(*MEASURE, option, value)
    assert isinstance(result.exception, BenchError)
    assert option in str(result.exception)
    assert not asked


def test_checkpoints_have_a_table_of_their_own(llava: Path) -> None:
    shown = bench_ok("flops", "--models", f"hf:{llava},blind", "--caption-length", 4, "--position", 3)
    assert max(map(len, shown.stdout.splitlines())) <= 80
    assert "blind" in shown.stdout.split("hf:llava")[0]
    for said in ("Vision  Prefill  Step 3", "picture of 640 x 480"):
        assert said in shown.stdout
    exact = bench("flops", "--models", f"hf:{llava}", "--caption-length", 4, "--image-size", 30, "--format", "csv")
    [row] = csv.DictReader(io.StringIO(exact.stdout))
    assert row["model"] == "hf:llava"
    assert int(row["greedy_mac"]) < int(row["beam_mac"])
    assert row["training_mac"] == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("flops", "--models", "blind", "--hub", "prompt=photo"), "--hub prompt is for models of hf:"),
        (("flops", "--models", "HF", "--operators"), "--operators is not for models of hf:"),
        (("flops", "--models", "hf:/nowhere/at/all"), "there is no such folder"),
        (("cost", "measure", "--models", "blind", "--hub", "attention=eager"), "--hub attention is for models of hf:"),
        (("cost", "measure", "--models", "HF", "--hub", "attention=fast"), "--hub attention=fast is unknown"),
    ],
)
def test_what_does_not_fit_is_refused(words: tuple[object, ...], said: str, llava: Path) -> None:
    assert said in str(bench(*(f"hf:{llava}" if word == "HF" else word for word in words)).exception)


def test_time_and_memory_are_those_of_the_checkpoint_itself(llava: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[BenchmarkJob] = []

    def here(job: BenchmarkJob) -> tuple[list[BenchmarkResult], dict[str, Any]]:
        asked.append(job)
        return import_module(job.answered_by).measure(job), {}

    monkeypatch.setattr(harness.measure.isolated, "run_isolated", here)
    short = ("--batch", "1,2", "--beam", 2, "--caption-length", 2, "--repeats", 2, "--energy-seconds", 0)
    shown = bench_ok("cost", "measure", "--models", f"hf:{llava}", *short, "--precision", "bf16", "--device", "cpu")
    assert [line.split()[:3] for line in shown.stdout.splitlines() if "hf:llava" in line] == [
        ["hf:llava", "1", "2"],
        ["hf:llava", "2", "2"],
    ]
    assert "from the processor's output" in " ".join(shown.stdout.split())
    [job] = asked
    assert job.checkpoint is not None
    assert job.checkpoint["where"] == str(llava)
    assert callable(import_module(job.answered_by).measure)
