"""Checkpoints of transformers' own interface: their runs, captions for images, and costs apart from any data set."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from harness.benchmark.caption_images import Captioned, readable
from harness.benchmark.context import RunContext
from harness.benchmark.hub_model import HubModel, HubOptions, SavedHubModel, described, refuse_options
from harness.benchmark.saved_model import find_run, read_description
from harness.benchmark.scoring import score_split
from harness.benchmark.timing import time_hub
from harness.benchmark.training_costs import no_training
from harness.config.preset import Decoding
from harness.data.dataset import Dataset
from harness.data.hub import PREFIX
from harness.data.images import load_image
from harness.inference.hub_captioner import HubCaptioner, caption_with_hub
from harness.measure.captioning_costs import Counted, Timed, counted, time_generation
from harness.measure.flops.generation import GenerationCounts, count_generation
from harness.measure.isolated import BenchmarkJob, BenchmarkResult, measure_all
from harness.measure.memory import PeakMemory
from harness.metrics.evaluator import Evaluator
from harness.utils.progress import Reporter
from harness.utils.workspace import Workspace
from results.records import Outcome, Quantity, RunSpec


def run_hub(
    spec: RunSpec,
    context: RunContext,
    evaluator: Evaluator,
    folder: Path,
    reporter: Reporter,
) -> Outcome:
    """Caption and score every evaluated split, and measure costs; leaves a description in the run's folder.

    Raises:
        WeightsMissing: they are not on this machine.
        ZooError, BenchError: they are damaged, or do not caption.
    """
    execution, decoding, data = context.execution, context.inputs.decoding, context.data
    model = described(spec.config)
    captioner = model.open(execution.device, execution.precision)
    SavedHubModel(model=model, decoding=decoding).save(folder)
    counted = count_hub(captioner, context)
    costs = counted.costs | no_training("a published model as it is: nothing was trained here")
    splits = []
    for split, samples in data.evaluated.items():
        ids = [sample.image_id for sample in samples]
        with PeakMemory(execution.device) as memory:
            captions = caption_with_hub(
                captioner,
                data.dataset,
                ids,
                decoding,
                reporter=reporter,
                title=f"  captioning {split}",
                jobs=execution.config.jobs,
            )
        result, seconds = score_split(split, captions.by_image, data, evaluator)
        if split == "test":
            costs["caption_images_per_second"] = Quantity(len(ids) / captions.seconds, unit="images/s")
            costs["caption_length_mean"] = Quantity(captions.generated / len(ids), unit="tokens")
            costs["score_seconds"] = Quantity(seconds, unit="s")
            costs |= memory.quantities("caption")
        splits.append(result)
    timed = time_hub(captioner, context)
    used = {"measurement": timed.state, "attention": captioner.attention, "prompt": captioner.prompt.text}
    return Outcome(splits=tuple(splits), costs=costs | timed.costs, environment=used)


def count_hub(captioner: HubCaptioner, context: RunContext) -> Counted:
    """What captioning one test image takes of computation."""
    decoding, data = context.inputs.decoding, context.data
    typical = data.typical_image()
    sample = next(sample for sample in data.evaluated["test"] if sample.image_id == typical)
    inputs = captioner.inputs([load_image(data.dataset.path(sample))])

    def generate(length: int, beam_size: int) -> None:
        asked = decoding.model_copy(update={"max_len": length, "beam_size": beam_size})
        captioner.generate(inputs, asked, full_length=True)

    sizes = {"beam_size": decoding.beam_size, "max_len": decoding.max_len}
    return counted(captioner.network, lambda: count_generation(captioner.vision, generate, **sizes))


def find_hub(run: str, workspace: Workspace, options: HubOptions) -> SavedHubModel | None:
    """The checkpoint that `run` names, itself or as the key of its run; None where it is a run of another kind.

    Raises:
        BenchError: there is no such checkpoint or run, or an option of checkpoints is given to a run of another kind.
    """
    if run.startswith(PREFIX):
        return SavedHubModel(model=HubModel.parse(run, options), decoding=Decoding())
    folder = find_run(run, workspace)
    if not (folder / SavedHubModel.file).is_file():
        refuse_options(options, f"{run} is none", "leave it out")
        return None
    saved = read_description(SavedHubModel, folder / SavedHubModel.file)
    return saved.model_copy(update={"model": replace(saved.model, **options)})


def caption_with_checkpoint(
    images: Dataset, saved: SavedHubModel, *, reporter: Reporter, beam_size: int | None = None
) -> Captioned:
    """Caption all images that can be read, in float32 unless the checkpoint was asked for in another type.

    Raises:
        WeightsMissing: they are not on this machine.
        BenchError, ZooError: the checkpoint is damaged, or of no model that captions.
    """
    usable, unusable = readable(images)
    if not usable.samples:
        return Captioned({}, unusable)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    captioner = saved.model.open(device, "fp32")
    decoding = saved.decoding if beam_size is None else saved.decoding.model_copy(update={"beam_size": beam_size})
    captions = caption_with_hub(
        captioner,
        usable,
        [sample.image_id for sample in usable.samples],
        decoding,
        reporter=reporter,
        title="captioning",
    )
    return Captioned(captions.by_image, unusable)


PICTURE = (640, 480)
"""Width and height of the picture that costs are measured with, the most frequent size in COCO."""


@dataclass(frozen=True, slots=True)
class CheckpointCount:
    """Cost of one image."""

    parameters: int
    counts: GenerationCounts
    prompt: str


def find_checkpoints(names: Iterable[str], options: HubOptions) -> dict[str, HubModel]:
    """The checkpoints among the words of `--models`, by word.

    Raises:
        BenchError: one cannot caption, or options of checkpoints are given without one.
    """
    found = {name: HubModel.parse(name, options) for name in names if name.startswith(PREFIX)}
    if not found:
        refuse_options(options, "--models names none", "add hf:ORG/NAME")
    for model in found.values():
        model.refuse()
    return found


def count_checkpoint(
    model: HubModel, picture: tuple[int, int], *, max_len: int, beam_size: int, position: int | None
) -> CheckpointCount:
    """Count captioning of one picture.

    Args:
        position: of the one step that is counted by itself; the last of the caption unless given.
    """
    captioner = model.open(torch.device("cpu"), "fp32")
    inputs = captioner.inputs([Image.new("RGB", picture)])
    at = max(position or max_len, 2)

    def generate(length: int, width: int) -> None:
        captioner.generate(inputs, Decoding(beam_size=width, max_len=length), full_length=True)

    counts = count_generation(captioner.vision, generate, beam_size=beam_size, max_len=max_len, step_position=at)
    parameters = sum(parameter.numel() for parameter in captioner.network.parameters())
    return CheckpointCount(parameters, counts, captioner.prompt.name)


def checkpoint_job(model: HubModel, common: dict[str, Any]) -> BenchmarkJob:
    """The measurement of a checkpoint in a process of its own; `common` has the other arguments of the job."""
    return BenchmarkJob(model=model.row, arguments={}, checkpoint=asdict(model), answered_by=__name__, **common)


def measure(job: BenchmarkJob) -> list[BenchmarkResult]:
    """As `harness.measure.isolated.measure`, of a checkpoint: from its processor's output to finished tokens."""
    model, device = HubModel(**(job.checkpoint or {})), torch.device(job.device)

    def timed(captioner: HubCaptioner, batch: int, width: int) -> Timed:
        decoding = Decoding(beam_size=width, max_len=job.max_len)
        inputs = captioner.inputs([Image.new("RGB", PICTURE)] * batch)
        work = partial(captioner.generate, inputs, decoding, full_length=True)
        return time_generation(work, 1, device, effort=job.effort, batch=batch)

    return measure_all(job, lambda precision: partial(timed, model.open(device, precision)))
