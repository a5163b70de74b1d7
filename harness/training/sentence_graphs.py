"""Stages that learn to reconstruct captions from their scene graphs: the graphs, the loss, and its validation.

Only models with an auto-encoder of sentence graphs have such stages (SGAE, Yang et al., CVPR 2019); other models skip
them.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from harness.config.preset import Preset
from harness.config.schedule import Stage
from harness.data.batches import Batch, CaptionBatches, VisualSource
from harness.data.dataset import Dataset, Sample
from harness.data.graphs import (
    OPTION,
    NumberedGraph,
    SentenceGraphs,
    number_graph,
    parse_scene_sentences,
    read_sentence_graphs,
)
from harness.data.prepare_features import TRAINING_SPLITS
from harness.data.scenes.dataset import SCENES
from harness.data.vocabulary import Vocabulary
from harness.measure.model_modes import eval_mode
from harness.training.objectives import CrossEntropy
from harness.utils.errors import BenchError
from harness.utils.precision import autocast
from zoo import Captioner, Memory, Visual


@runtime_checkable
class HasSentenceGraphs(Protocol):
    """A captioner that may have an auto-encoder of sentence graphs, whose words are entries of its vocabulary.

    `sentences` holds it, if any: no member here, since from Python 3.12 on a protocol does not see submodules.
    """

    def encode_sentences(
        self, visual: Visual, objects: Tensor, attributes: Tensor, relations: Tensor, *, dictionary: bool = False
    ) -> Memory:
        """Encode the scene graphs of n sentences of each image (B * n, ...), for `Captioner.decode`.

        Args:
            visual: B images; what of them is read beside the graphs is the model's own.
            objects: (B * n, N), attributes: (B * n, N, a) of each object, -1 where padded.
            relations: (B * n, M, 3), places of subject and object, and the word; -1 where padded.
            dictionary: encode through the model's dictionary.
        """


def has_sentences(model: Captioner) -> bool:
    """Whether the model has a part for sentence graphs."""
    return isinstance(model, HasSentenceGraphs) and getattr(model, "sentences", None) is not None


def require_sentences(model: Captioner, stage: Stage) -> HasSentenceGraphs:
    """The model, if it has a part for sentence graphs; BenchError if it has none."""
    if isinstance(model, HasSentenceGraphs) and has_sentences(model):
        return model
    raise BenchError(
        f"stage {stage.name!r} learns from sentence graphs, and this model has no part for them",
        "choose the model sgae/sentences, or another schedule",
    )


def check_sentences(dataset: Dataset, file: Path | None, preset: Preset) -> bool:
    """Whether a stage reads sentence graphs; if so, checks that they are available, without opening a file.

    Raises:
        BenchError: a stage reads them and there is no file, or a vocabulary of subwords; or nothing reads the file.
    """
    schedule = preset.schedule
    if all(stage.gives_ciders for stage in schedule.stages):
        if file is None:
            return False
        raise BenchError(
            f"{OPTION} is given, and no stage of the schedule {schedule.name!r} learns from sentence graphs",
            f"leave out {OPTION}, or add --preset quick-sentences or sgae-paper",
        )
    if preset.vocabulary.kind != "words":
        raise BenchError(
            f"schedule {schedule.name!r} learns from sentence graphs, whose words are entries of the vocabulary, and "
            "this one is of subwords",
            "add --set vocabulary.kind=words",
        )
    if file is None and dataset.name not in SCENES:
        raise BenchError(
            f"schedule {schedule.name!r} learns from scene graphs of captions, and {dataset.name} has none",
            f"add {OPTION}=FILE (its format is in docs/graph_models.md), or choose a preset without such stages",
        )
    return True


def open_sentences(
    dataset: Dataset, file: Path | None, preset: Preset, splits: Mapping[str, Sequence[Sample]]
) -> SentenceGraphs | None:
    """Graphs of training and validation captions, from the file or parsed from scenes; None if no stage reads any."""
    if not check_sentences(dataset, file, preset):
        return None
    samples = [sample for name in TRAINING_SPLITS for sample in splits[name]]
    sentences = parse_scene_sentences(samples) if file is None else read_sentence_graphs(file)
    return replace(sentences, by_image={sample.image_id: sentences.of(sample) for sample in samples})


def numbered_graphs(
    samples: Sequence[Sample], graphs: SentenceGraphs, vocabulary: Vocabulary
) -> list[list[NumberedGraph]]:
    """For each sample, the graph of each of its captions, with words as numbers of the vocabulary."""
    numbered = []
    for sample in samples:
        caption_graphs = graphs.of(sample)
        numbers = {graph: number_graph(graph, vocabulary) for graph in set(caption_graphs)}
        numbered.append([numbers[graph] for graph in caption_graphs])
    return numbered


class SentenceGraphLoss(CrossEntropy):
    """Cross-entropy of captions decoded from their scene graphs; `stage.dictionary`: through the model's dictionary."""

    def memory(self, model: Captioner, batch: Batch) -> Memory:
        """The encoded graphs of the batch."""
        graphs = batch.sentences
        if graphs is None:
            raise ValueError("the batch has no graphs")
        return require_sentences(model, self.stage).encode_sentences(
            batch.visual, graphs.objects, graphs.attributes, graphs.relations, dictionary=self.stage.dictionary
        )


def validate_sentences(
    stage: Stage,
    model: Captioner,
    samples: Sequence[Sample],
    graphs: SentenceGraphs,
    vocabulary: Vocabulary,
    source: VisualSource,
    max_len: int,
    device: torch.device,
    precision: str,
    note: Callable[[str], None],
) -> float:
    """The geometric mean of the probabilities of all words, decoded from captions' graphs; 0 if not finite.

    It is exp(-loss); the loss, which is passed to `note`, is the mean cross-entropy of a word, without label smoothing.
    """
    batches = CaptionBatches(
        samples,
        vocabulary,
        source,
        model.visual,
        batch_size=stage.batch_size,
        captions_per_image=max(len(sample.captions) for sample in samples),
        seed=0,
        max_len=max_len,
        graphs=numbered_graphs(samples, graphs, vocabulary),
    )
    plain = stage.model_copy(update={"scheduled_sampling": None, "label_smoothing": 0.0})
    objective = SentenceGraphLoss(plain, vocabulary.pad)
    total = 0.0
    words = 0.0
    with eval_mode(model), torch.no_grad():
        for batch in batches.epoch(0):
            weight = objective.weight(batch)
            with autocast(device, precision):
                loss = objective(model, batch.to(device))
            total += weight * loss.item()
            words += weight
    note(f"  {stage.name}: validation loss {total / words:.3f}")
    return math.exp(-total / words) if math.isfinite(total) else 0.0
