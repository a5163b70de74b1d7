"""Measure a model in its own process, isolated from the memory, threads and caches of other models.

The process reads one `BenchmarkJob` as JSON from standard input and prints the results, and nothing else, to standard
output; what the model's code prints goes to standard error.
"""

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter

import harness
from harness.measure.captioning_costs import Effort, Timed, time_captioning
from harness.measure.environment import describe_environment
from harness.measure.inputs import batch_of, example_for
from harness.measure.memory import PeakMemory, create_within_memory
from harness.utils.errors import BenchError
from harness.utils.plugins import load_plugins
from results.records import Quantity
from zoo.decoding import beam_search

_BOS, _EOS = 1, 2


@dataclass(frozen=True, slots=True)
class BenchmarkJob:
    """What to measure of a model with random weights; every caption has the maximum length.

    Attributes:
        batches: numbers of images at once.
        widths: numbers of beams, where 1 is greedy. All pairs of `batches` and `widths` are measured.
        threads: CPU threads; the process is pinned to as many cores.
        checkpoint: for a model outside the zoo, the checkpoint that the module `answered_by` opens, with its weights.
        answered_by: the module whose `measure` is called.
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
    checkpoint: dict[str, Any] | None = None
    answered_by: str = "harness.measure.isolated"


@dataclass(frozen=True, slots=True)
class BenchmarkResult:
    """Costs of one batch size, width and precision, and the machine's state during measurement."""

    model: str
    batch: int
    width: int
    precision: str
    costs: dict[str, Quantity]
    state: dict[str, Any]


def run_isolated(job: BenchmarkJob) -> tuple[list[BenchmarkResult], dict[str, Any]]:
    """Measure in a new process; return results and environment, or raise BenchError with its last line of output."""
    root = str(Path(harness.__file__).resolve().parent.parent)
    paths = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    environment = os.environ | {"OMP_NUM_THREADS": str(job.threads), "PYTHONPATH": paths}
    program = (
        f"from harness.utils.processes import die_with; die_with({os.getpid()}); "  # before torch is imported
        f"from {__name__} import answer; answer()"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command, input=json.dumps(asdict(job)), capture_output=True, text=True, env=environment, check=False
    )
    if done.returncode:
        last_line = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise BenchError(f"{job.model} could not be measured: {last_line}")
    if not done.stdout:
        raise BenchError(f"{job.model} could not be measured: its code ended the process with exit code 0")
    return TypeAdapter(tuple[list[BenchmarkResult], dict[str, Any]]).validate_json(done.stdout)


def measure(job: BenchmarkJob) -> list[BenchmarkResult]:
    """Measure in this process: every pair of a batch size and a width, at every precision."""
    model = create_within_memory(job.model, vocab_size=job.vocab_size, visual_dim=job.visual_dim, **job.arguments)
    model.to(job.device).eval()
    example = example_for(model, length=job.regions)

    def timed(precision: str, batch: int, width: int) -> Timed:
        # Without an end token all captions are `max_len` long, whatever the weights.
        search = partial(beam_search, beam_size=width, max_len=job.max_len, bos=_BOS, eos=_EOS, banned=(_EOS,))
        return time_captioning(model, [batch_of(example, batch)], search, effort=job.effort, precision=precision)

    return measure_all(job, lambda precision: partial(timed, precision))


def measure_all(
    job: BenchmarkJob, open_precision: Callable[[str], Callable[[int, int], Timed]]
) -> list[BenchmarkResult]:
    """Measure every pair of batch size and width at every precision.

    Args:
        open_precision: prepares a precision; returns a function that times a batch size and a width.
    """
    results = []
    for precision in job.precisions:
        timed = open_precision(precision)
        for batch, width in product(job.batches, job.widths):
            with PeakMemory(job.device) as memory:
                timing = timed(batch, width)
            costs = timing.costs | memory.quantities("caption")
            results.append(BenchmarkResult(job.model, batch, width, precision, costs, timing.state))
    return results


def answer() -> None:
    """Entry point of the new process: read a job, measure it, and write the results."""
    job = TypeAdapter(BenchmarkJob).validate_json(sys.stdin.read())
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    load_plugins(job.plugins)
    torch.set_num_threads(job.threads)
    cores = None
    if hasattr(os, "sched_setaffinity"):  # not every system pins processes
        cores = sorted(os.sched_getaffinity(0))[: job.threads]
        os.sched_setaffinity(0, cores)
    torch.manual_seed(0)
    environment = describe_environment(job.device) | {"pinned_cores": cores}
    results = [asdict(result) for result in importlib.import_module(job.answered_by).measure(job)]
    with answers:
        json.dump([results, environment], answers)
