"""Captions, scores, attention maps and costs of a model that is ready, be it trained here or not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.benchmark.context import RunContext
from harness.benchmark.scoring import score_split
from harness.benchmark.timing import one_image, time_model
from harness.inference.attention import attention_records, check_attends, chosen_images, shown_parts
from harness.inference.generate import caption_images
from harness.measure.captioning_costs import Counted, count_captioning, count_mean_caption
from harness.measure.flops.kept import KeptCounts
from harness.measure.memory import PeakMemory
from harness.metrics.evaluator import Evaluator
from harness.utils.errors import BenchError
from harness.utils.precision import autocast
from harness.utils.progress import Reporter
from harness.utils.run_events import EvaluationBegins
from results.records import AttentionRecord, Outcome, Quantity
from zoo import Captioner
from zoo.attention_maps import attends


def count_costs(model: Captioner, context: RunContext, kept: KeptCounts | None = None) -> Counted:
    """What captioning one test image takes of computation; counted before where it is in `kept`."""
    decoding = context.inputs.decoding
    visual = one_image(model, context)
    return count_captioning(model, visual, beam_size=decoding.beam_size, max_len=decoding.max_len, kept=kept)


def evaluate(
    model: Captioner,
    context: RunContext,
    evaluator: Evaluator,
    *,
    counted: Counted,
    costs: dict[str, Quantity],
    environment: dict[str, Any],
    weights: Path,
    reporter: Reporter,
    kept: KeptCounts | None = None,
) -> Outcome:
    """Caption and score every evaluated split, and time captioning.

    Args:
        counted: of `count_costs`.
        costs: what is known already, of training.
        weights: where they lie.
        kept: as for `count_costs`.
    """
    reporter.watch(EvaluationBegins())
    costs = counted.costs | costs
    execution, decoding = context.execution, context.inputs.decoding
    splits = []
    for split, samples in context.data.evaluated.items():
        with PeakMemory(execution.device) as memory:
            captions = caption_images(
                model,
                context.inputs.vocabulary,
                context.source(model.visual),
                [sample.image_id for sample in samples],
                decoding,
                device=execution.device,
                precision=execution.precision,
                reporter=reporter,
                title=f"  captioning {split}",
            )
        if split == "test":
            costs["caption_images_per_second"] = Quantity(len(samples) / captions.seconds, unit="images/s")
            costs |= memory.quantities("caption")
            length, width = captions.generated / len(samples), decoding.beam_size
            costs |= count_mean_caption(model, one_image(model, context), beam_size=width, length=length, kept=kept)
        result, seconds = score_split(split, captions.by_image, context.data, evaluator)
        if split == "test":
            costs["score_seconds"] = Quantity(seconds, unit="s")
        if split == "test" and attends(model):
            result = replace(result, attention=_attention(model, context, captions.tokens, reporter))
        splits.append(result)
    timed = time_model(model, context)
    return Outcome(
        splits=tuple(splits),
        costs=costs | timed.costs,
        environment=environment | {"measurement": timed.state},
        checkpoint=str(weights),
        operators=counted.operators,
    )


def _attention(
    model: Captioner, context: RunContext, tokens: dict[int, list[int]], reporter: Reporter
) -> tuple[AttentionRecord, ...]:
    """Attention maps of a few captions; none, and a note why, where the places of the visual tokens are unknown."""
    source, execution = context.source(model.visual), context.execution
    said = {image_id: tokens[image_id] for image_id in chosen_images(list(tokens))}
    parts = shown_parts(context.data.dataset, context.inputs.preprocessing)
    try:
        check_attends("the model", model, source)
        with autocast(execution.device, execution.precision):
            records = attention_records(model, context.inputs.vocabulary, source, said, parts, device=execution.device)
            return tuple(records)
    except BenchError as error:
        reporter.note(f"  no attention maps: {error}")
        return ()
