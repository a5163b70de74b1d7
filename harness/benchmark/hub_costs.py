"""What checkpoints of `hf:` cost apart from any data set: `bench flops` and `bench cost measure`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from PIL import Image

from harness.benchmark.hub_model import PREFIX, HubModel
from harness.benchmark.hub_options import HubOptions
from harness.config.preset import Decoding
from harness.measure import isolated
from harness.measure.captioning_costs import time_generation
from harness.measure.flops.generation import GenerationCounts, count_again, count_generation
from harness.measure.isolated import BenchmarkJob, BenchmarkResult
from harness.measure.memory import PeakMemory
from harness.utils.errors import BenchError

PICTURE = (640, 480)
"""Width and height of the picture that costs are measured with, the most frequent size in COCO."""


@dataclass(frozen=True, slots=True)
class CheckpointCount:
    """Cost of one image.

    Attributes:
        row: the name of the checkpoint's row.
        parameters: elements of all distinct parameters.
        counts: by torch's counter.
        again: by the second counter, up to the first token and of the step; or why it cannot count them.
        prompt: the name of what it is asked.
        position: of the step.
    """

    row: str
    parameters: int
    counts: GenerationCounts
    again: tuple[int, int] | str
    prompt: str
    position: int

    @property
    def first(self) -> int:
        """Up to the first token: vision part and prefill."""
        return (self.counts.vision or 0) + self.counts.prefill


def find_checkpoints(names: Iterable[str], options: HubOptions) -> dict[str, HubModel]:
    """The checkpoints among the words of `--models`, by word.

    Raises:
        BenchError: one cannot caption, or options of checkpoints are given without one.
    """
    found = {name: HubModel.parse(name, options) for name in names if name.startswith(PREFIX)}
    if options.given and not found:
        raise BenchError(f"{options.given} is for models of hf:, and --models names none", "add hf:ORG/NAME")
    for model in found.values():
        model.refuse()
    return found


def count_checkpoint(
    model: HubModel, picture: tuple[int, int], *, max_len: int, beam_size: int, position: int | None
) -> CheckpointCount:
    """Count captioning of one picture, by two counters.

    Args:
        picture: its width and height.
        max_len, beam_size: of the caption and its search.
        position: of the one step that is counted by itself; the last of the caption unless given.

    Raises:
        WeightsMissing, ZooError, BenchError: as of `HubModel.open`.
    """
    captioner = model.open(torch.device("cpu"), "fp32")
    inputs = captioner.inputs([Image.new("RGB", picture)])
    at = max(position or max_len, 2)

    def generate(length: int, width: int) -> None:
        captioner.generate(inputs, Decoding(beam_size=width, max_len=length), full_length=True)

    counts = count_generation(captioner.vision, generate, beam_size=beam_size, max_len=max_len, step_position=at)
    try:
        again: tuple[int, int] | str = count_again(captioner.network, generate, length=at)
    except Exception as error:  # not every network can be traced
        again = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    parameters = sum(parameter.numel() for parameter in captioner.network.parameters())
    return CheckpointCount(model.row, parameters, counts, again, captioner.prompt.name, at)


def checkpoint_job(model: HubModel, common: dict[str, Any]) -> BenchmarkJob:
    """The measurement of a checkpoint in a process of its own; `common` has the other arguments of the job."""
    return BenchmarkJob(model=model.row, arguments={}, checkpoint=asdict(model), answered_by=__name__, **common)


def measure(job: BenchmarkJob) -> list[BenchmarkResult]:
    """As `harness.measure.isolated.measure`, of a checkpoint: from its processor's output to finished tokens."""
    results = []
    for precision in job.precisions:
        model = HubModel(**(job.checkpoint or {}))
        captioner = model.open(torch.device(job.device), precision)
        for batch in job.batches:
            for width in job.widths:
                decoding = Decoding(beam_size=width, max_len=job.max_len)
                with PeakMemory(job.device) as memory:
                    inputs = captioner.inputs([Image.new("RGB", PICTURE)] * batch)

                    def work(inputs: Any = inputs, decoding: Decoding = decoding, captioner: Any = captioner) -> None:
                        captioner.generate(inputs, decoding, full_length=True)

                    timed = time_generation(work, 1, torch.device(job.device), effort=job.effort, batch=batch)
                costs = timed.costs | memory.quantities("caption")
                results.append(BenchmarkResult(job.model, batch, width, precision, costs, timed.state))
    return results


def answer() -> None:
    """In the new process: read a job, measure it, and write the results."""
    isolated.answer(measure)
