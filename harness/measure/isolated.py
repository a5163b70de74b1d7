"""Costs of a model in a process of its own, so that no other model's memory, threads or caches are measured with it.

`python -m harness.measure.isolated` reads one `Question` as JSON and answers with one JSON object in its last line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

import harness
from harness.measure.captioning_costs import Effort, time_captioning
from harness.measure.environment import describe_environment
from harness.measure.inputs import batch_of, example_visual
from harness.measure.memory import PeakMemory
from harness.utils.errors import BenchError
from harness.utils.plugins import load_plugins
from results.records import Quantity
from zoo.registry import create_model

_BOS, _EOS = 1, 2


@dataclass(frozen=True, slots=True)
class Question:
    """What to measure of one model; weights are random, and every caption is as long as it may be.

    Attributes:
        model, arguments, vocab_size, visual_dim: of `zoo.create_model`.
        regions: grid cells or regions an image.
        max_len: tokens of a caption.
        batches, widths: images at once, and beams (1 is greedy): all pairs are measured.
        device: of torch.
        precisions: "fp32" or "bf16".
        threads: of the processor; as many of its cores are pinned.
        effort: how long to measure each pair.
        plugins: that the model needs.
    """

    model: str
    arguments: dict[str, Any]
    vocab_size: int
    visual_dim: int
    regions: int
    max_len: int
    batches: tuple[int, ...]
    widths: tuple[int, ...]
    device: str
    precisions: tuple[str, ...]
    threads: int
    effort: Effort
    plugins: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """Costs of one batch size, width and precision, with the machine's state meanwhile."""

    model: str
    batch: int
    width: int
    precision: str
    costs: dict[str, Quantity]
    state: dict[str, Any]


def run_isolated(question: Question) -> tuple[list[Answer], dict[str, Any]]:
    """Measure in a new process; gives the answers, and the environment that they were measured in.

    Raises:
        BenchError: the process fails; with what it said last.
    """
    root = str(Path(harness.__file__).resolve().parent.parent)
    paths = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    environment = os.environ | {"OMP_NUM_THREADS": str(question.threads), "PYTHONPATH": paths}
    command = [sys.executable, "-m", "harness.measure.isolated"]
    done = subprocess.run(
        command, input=json.dumps(asdict(question)), capture_output=True, text=True, env=environment, check=False
    )
    if done.returncode:
        said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise BenchError(f"{question.model} could not be measured: {said}")
    found = json.loads(done.stdout.strip().splitlines()[-1])
    answers = [
        Answer(**{**answer, "costs": {name: Quantity(**cost) for name, cost in answer["costs"].items()}})
        for answer in found["answers"]
    ]
    return answers, found["environment"]


def measure(question: Question) -> list[Answer]:
    """Measure in this process: every pair of a batch size and a width, at every precision."""
    model = create_model(
        question.model, vocab_size=question.vocab_size, visual_dim=question.visual_dim, **question.arguments
    )
    model.to(question.device).eval()
    one = example_visual(model.visual, length=question.regions)
    answers = []
    for precision in question.precisions:
        for batch in question.batches:
            for width in question.widths:
                with PeakMemory(question.device) as memory:
                    timed = time_captioning(
                        model,
                        [batch_of(one, batch)],
                        beam_size=width,
                        max_len=question.max_len,
                        bos=_BOS,
                        eos=_EOS,
                        effort=question.effort,
                        precision=precision,
                        full_length=True,
                    )
                costs = timed.costs | memory.quantities("caption")
                answers.append(Answer(question.model, batch, width, precision, costs, timed.state))
    return answers


def _pin(threads: int) -> list[int] | None:
    """Keep to as many cores as there are threads; gives their numbers, None where the system cannot."""
    torch.set_num_threads(threads)
    if not hasattr(os, "sched_setaffinity"):
        return None
    cores = sorted(os.sched_getaffinity(0))[:threads]
    os.sched_setaffinity(0, cores)
    return cores


def _main() -> None:
    given = json.load(sys.stdin)
    question = Question(**{**given, "effort": Effort(**given["effort"])})
    load_plugins(question.plugins)
    cores = _pin(question.threads)
    torch.manual_seed(0)
    environment = describe_environment(question.device) | {"pinned_cores": cores}
    answers = [asdict(answer) for answer in measure(question)]
    sys.stdout.write("\n" + json.dumps({"answers": answers, "environment": environment}) + "\n")


if __name__ == "__main__":
    _main()
