"""The run of a checkpoint of transformers' own interface: captions, scores and costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.benchmark.context import RunContext
from harness.benchmark.hub_model import SavedHubModel, described
from harness.benchmark.scoring import score_split
from harness.benchmark.timing import time_hub
from harness.benchmark.training_costs import no_training
from harness.data.images import load_image
from harness.inference.hub_captioner import HubCaptioner, caption_with_hub
from harness.measure.captioning_costs import Counted, count_generating
from harness.measure.memory import PeakMemory
from harness.metrics.evaluator import Evaluator
from harness.utils.progress import Reporter
from results.records import Outcome, Quantity, RunSpec


def run_hub(
    spec: RunSpec,
    context: RunContext,
    evaluator: Evaluator,
    folder: Path,
    environment: dict[str, Any],
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
    SavedHubModel.of(model, decoding).save(folder)
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
    return Outcome(splits=tuple(splits), costs=costs | timed.costs, environment=environment | used)


def count_hub(captioner: HubCaptioner, context: RunContext) -> Counted:
    """What captioning one test image takes of computation."""
    decoding, data = context.inputs.decoding, context.data
    typical = data.typical_image()
    sample = next(sample for sample in data.evaluated["test"] if sample.image_id == typical)
    inputs = captioner.inputs([load_image(data.dataset.path(sample))])

    def generate(length: int, beam_size: int) -> None:
        asked = decoding.model_copy(update={"max_len": length, "beam_size": beam_size})
        captioner.generate(inputs, asked, full_length=True)

    return count_generating(
        captioner.network, captioner.vision, generate, beam_size=decoding.beam_size, max_len=decoding.max_len
    )
