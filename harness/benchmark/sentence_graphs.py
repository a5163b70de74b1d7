"""The scene graphs of captions that a preset's schedule asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from harness.config.preset import Preset
from harness.data.dataset import SCENES, Dataset, Sample
from harness.data.graphs.sentences import OPTION, SentenceGraphs, parse_scene_sentences, read_sentence_graphs
from harness.data.prepare_features import TRAINING_SPLITS
from harness.utils.errors import BenchError


def check_sentences(dataset: Dataset, file: Path | None, preset: Preset) -> bool:
    """Whether a stage reads sentence graphs, which are then to be had; nothing is opened.

    Raises:
        BenchError: a stage reads them and there is no file, or a vocabulary of subwords; or nothing reads the file.
    """
    schedule = preset.schedule
    if not schedule.reads_sentences:
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
    if file is None and dataset.name != SCENES:
        raise BenchError(
            f"schedule {schedule.name!r} learns from scene graphs of captions, and {dataset.name} has none",
            f"add {OPTION} FILE (its format is in docs/graph_models.md), or choose a preset without such stages",
        )
    return True


def open_sentences(
    dataset: Dataset, file: Path | None, preset: Preset, splits: Mapping[str, Sequence[Sample]]
) -> SentenceGraphs | None:
    """Graphs of the training and validation captions: of the file, or parsed of scenes; None where no stage reads any.

    Raises:
        BenchError: as `check_sentences`, or the file has no graph for each.
    """
    if not check_sentences(dataset, file, preset):
        return None
    samples = [sample for name in TRAINING_SPLITS for sample in splits[name]]
    found = parse_scene_sentences(samples) if file is None else read_sentence_graphs(file)
    return replace(found, by_image={sample.image_id: found.of(sample) for sample in samples})
