"""Stages that learn from the scene graphs of captions: their graphs in numbers, and their validation."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from harness.benchmark.context import RunContext
from harness.config.schedule import Schedule, Stage
from harness.data.batches import CaptionBatches
from harness.data.dataset import Sample
from harness.data.graphs.sentences import NumberedGraph, SentenceGraphs, number_graph
from harness.data.vocabulary import Vocabulary, as_read
from harness.measure.model_modes import eval_mode
from harness.training.sentence_graph import SentenceGraphLoss
from harness.training.stage import stages_for
from harness.utils.precision import autocast
from harness.utils.progress import Reporter
from zoo import Captioner


def choose_stages(model: Captioner, schedule: Schedule, reporter: Reporter) -> tuple[Schedule, list[int]]:
    """The schedule with the stages that this model has, and their places among all; what is left out is said."""
    chosen = stages_for(model, schedule)
    places = [place for place, stage in enumerate(schedule.stages) if stage in chosen.stages]
    if left_out := [stage.name for stage in schedule.stages if stage not in chosen.stages]:
        reporter.note(f"  left out, since the model has no part for sentence graphs: {', '.join(left_out)}")
    return chosen, places


def numbered_graphs(
    samples: Sequence[Sample], graphs: SentenceGraphs, vocabulary: Vocabulary
) -> list[list[NumberedGraph]]:
    """Of each sample, the graph of each of its captions, in numbers of the vocabulary."""
    found = []
    for sample in samples:
        told = graphs.of(sample)
        numbers = {graph: number_graph(graph, vocabulary) for graph in set(told)}
        found.append([numbers[graph] for graph in told])
    return found


def measure_score(model: Captioner, context: RunContext, reporter: Reporter, stage: Stage) -> float:
    """A geometric mean: the probability of a word of the validation captions, told from their graphs; 0 if not finite.

    That is exp(-loss), which is reported, without label smoothing: above 0, and more is better, as of CIDEr-D.
    """
    vocabulary, device, graphs = context.inputs.vocabulary, context.execution.device, context.data.sentences
    if graphs is None:
        raise ValueError("the context has no sentence graphs")
    samples = as_read(context.data.val, vocabulary.preparation)
    batches = CaptionBatches(
        samples,
        vocabulary,
        context.source(model.visual),
        model.visual,
        batch_size=stage.batch_size,
        captions_per_image=max(len(sample.captions) for sample in samples),
        seed=0,
        max_len=context.preset.vocabulary.max_len,
        graphs=numbered_graphs(samples, graphs, vocabulary),
    )
    objective, total, words = SentenceGraphLoss(stage, vocabulary.pad), 0.0, 0.0
    with eval_mode(model), torch.no_grad():
        for batch in batches.epoch(0):
            weight = objective.weight(batch)
            with autocast(device, context.execution.precision):
                loss = objective(model, batch.to(device))
            total, words = total + weight * loss.item(), words + weight
    reporter.note(f"  {stage.name}: validation loss {total / words:.3f}")
    return math.exp(-total / words) if math.isfinite(total) else 0.0
