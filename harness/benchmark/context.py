"""The context that runs are executed in: the data, each model's inputs, the device, and the signature they make."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from harness.benchmark.identity.signature import data_field, model_signature, nrefs_field, vocabulary_field
from harness.benchmark.splits import usable_splits, without_restval
from harness.config.execution import ExecutionConfig
from harness.config.features import FeatureConfig
from harness.config.preset import Decoding, Preset, VocabularyConfig
from harness.config.tuning import Tuned, tuned_preset
from harness.data import open_dataset
from harness.data.backbones.backbone import Backbone
from harness.data.batches import VisualSource
from harness.data.chunks import Spread
from harness.data.dataset import Dataset, Sample
from harness.data.features import Features, NullSource, VisualFeatures
from harness.data.graphs.images import ImageGraphs, ReadGraphs, WithGraph, number_graphs, prepare_graphs
from harness.data.graphs.sentences import SentenceGraphs
from harness.data.pixels import PixelSource, Preprocessing
from harness.data.prepare_features import (
    TRAINING_SPLITS,
    Prepared,
    configured_backbone,
    prepare_features,
    warn_of_preprocessing,
)
from harness.data.regions.features import both_streams
from harness.data.vocabularies import SubwordVocabulary
from harness.data.vocabulary import Vocabulary, counted_captions
from harness.metrics.signature import EvaluationSettings
from harness.training.sentence_graphs import check_sentences, open_sentences
from harness.utils.errors import BenchError
from harness.utils.files import require_utf8
from harness.utils.progress import Reporter
from harness.utils.workspace import Workspace
from results.records import DatasetRecord, ImageRecord
from zoo.captioner import GraphKind, VisualKind, VisualSpec


@dataclass(frozen=True)
class BenchmarkData:
    """What all models of a benchmark share.

    Attributes:
        skipped: reasons by image id.
        evaluated: the scored splits by name.
        features: None where no model of the benchmark reads any.
        grid: the cells beside regions; None where no model sees both, or regions come from elsewhere.
        cache: the folder of what can be made again.
        graphs: scene graphs; None where no model reads any, or none are given.
        sentences: scene graphs of the training and validation captions; None where no stage reads any.
    """

    dataset: Dataset
    skipped: dict[int, str]
    train: tuple[Sample, ...]
    val: tuple[Sample, ...]
    evaluated: dict[str, tuple[Sample, ...]]
    backbone: Backbone
    feature_config: FeatureConfig
    features: VisualFeatures | None
    cache: Path
    grid: Features | None = None
    graphs: ImageGraphs | None = None
    sentences: SentenceGraphs | None = None

    @property
    def visual_dim(self) -> int:
        """Channels of the features, whether or not they are needed here."""
        return self.backbone.dim if self.features is None else self.features.dim

    def typical_image(self) -> int:
        """The test image to measure costs with."""
        ids = [sample.image_id for sample in self.evaluated["test"]]
        return ids[0] if self.features is None else self.features.typical(ids)

    def record(self, fingerprint: str) -> DatasetRecord:
        """The data set as the store and the reports know it."""
        images = tuple(
            ImageRecord(sample.image_id, sample.file, split, sample.captions, sample.domain)
            for split, samples in self.evaluated.items()
            for sample in samples
        )
        return DatasetRecord(
            name=self.dataset.name,
            fingerprint=fingerprint,
            root=str(self.dataset.root.resolve()),
            split_sizes={name: len(samples) for name, samples in self.dataset.splits.items()},
            images=images,
            skipped={f"image {image_id}": reason for image_id, reason in sorted(self.skipped.items())},
        )


@dataclass(frozen=True)
class ModelInputs:
    """What one model reads and writes; a pretrained or saved model brings its own.

    `graph_entries` are those of a saved model (`ImageGraphs.entries`); None has the data's.
    """

    vocabulary: Vocabulary
    preprocessing: Preprocessing
    decoding: Decoding
    graph_entries: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Execution:
    """What a run computes on: `config` holds the numbers of devices and of jobs."""

    device: torch.device
    precision: str
    config: ExecutionConfig = field(default_factory=ExecutionConfig)


@dataclass(frozen=True)
class RunContext:
    """All that the execution of a run needs besides its spec; picklable.

    `preset` and `signature` are those of all models, untuned; `tuned` holds what was tuned for each of them.
    """

    data: BenchmarkData
    inputs: ModelInputs
    execution: Execution
    preset: Preset
    signature: dict[str, str]
    tuned: Tuned | None = None

    def for_model(self, model: str) -> RunContext:
        """The context of a trained model: where it was tuned, with its values in the preset, and the signature so."""
        if self.tuned is None or model not in self.tuned.values:
            return self
        preset = tuned_preset(self.preset, self.tuned.values[model], self.tuned.stages)
        return replace(self, preset=preset, signature=self.signature | {"tuned": self.tuned.label}, tuned=None)

    def updates(self) -> tuple[int, ...]:
        """The optimiser steps of each stage of the preset, without an early stop; the same for every model."""
        return tuple(stage.epochs * stage.steps_per_epoch(*self.counts()) for stage in self.preset.schedule.stages)

    def counts(self) -> tuple[int, int]:
        """The images and captions that models are trained on."""
        return len(self.data.train), sum(len(sample.captions) for sample in self.data.train)

    def source(self, spec: VisualSpec) -> VisualSource:
        """What a model with this `spec` reads: the features, or the images as its preprocessing gives them.

        Raises:
            BenchError: a second stream or a scene graph that the model needs is not there.
        """
        if spec.graph != "none":
            return self._with_graph(self.source(replace(spec, graph="none")), spec.graph)
        if spec.kind == "pixels":
            return PixelSource(self.data.dataset, self.inputs.preprocessing)
        if spec.kind == "regions+grid":
            return both_streams(self.data.features, self.data.grid)
        return self.data.features or NullSource()

    def graph_entries(self, kind: GraphKind) -> tuple[str, ...]:
        """What the numbers of a graph stand for besides words of the vocabulary; none without graphs."""
        if self.inputs.graph_entries is not None or self.data.graphs is None:
            return self.inputs.graph_entries or ()
        return self.data.graphs.entries[kind]

    def _with_graph(self, source: VisualSource, kind: GraphKind) -> VisualSource:
        if self.data.graphs is None:
            raise BenchError(
                "the model needs a scene graph of each image, and none are given",
                "add --graphs scenes or --graphs FILE.json, with --regions; or leave the model out",
            )
        return WithGraph(source, kind, self.data.graphs.graphs, self.graph_entries(kind), self.inputs.vocabulary)


def prepare_context(
    data_name: str,
    *,
    images: Path | None,
    preset: Preset,
    feature_config: FeatureConfig,
    sees: Mapping[str, VisualKind],
    evaluation: EvaluationSettings,
    skip_bad_images: bool,
    device: torch.device,
    precision: str,
    workspace: Workspace,
    reporter: Reporter,
    spread: Spread | None = None,
    graphs: Collection[GraphKind] = (),
) -> RunContext:
    """Open the data, verify every image, extract or re-use the features and build the vocabulary.

    Args:
        data_name: as `bench run --data` takes it.
        sees: the kind of visual input of each model, by its name.
        evaluation: how the captions will be scored.
        spread: computes features elsewhere.
        graphs: the kinds of scene graphs that models read.

    Raises:
        BenchError: unreadable data, an empty split, a wrong backbone, and what `prepare_features` refuses.
    """
    dataset, backbone = open_inputs(data_name, images, preset, feature_config, workspace)
    warn_of_preprocessing(feature_config, sees, reporter)
    seen = prepare_features(
        dataset,
        feature_config,
        backbone,
        sees=sees,
        cache_dir=workspace.cache,
        may_skip=skip_bad_images,
        device=device,
        reporter=reporter,
        storage=workspace.remote,
        spread=spread,
    )
    read = prepare_graphs(dataset, feature_config, seen, graphs, may_skip=skip_bad_images, reporter=reporter)
    return assemble_context(
        dataset,
        backbone,
        seen,
        graphs=read,
        preset=preset,
        feature_config=feature_config,
        evaluation=evaluation,
        execution=Execution(device, precision),
        cache=workspace.cache,
    )


def open_inputs(
    data_name: str, images: Path | None, preset: Preset, feature_config: FeatureConfig, workspace: Workspace
) -> tuple[Dataset, Backbone]:
    """Open the data and the backbone that sees them; BenchError as `prepare_context`."""
    dataset = open_dataset(data_name, cache_dir=workspace.cache, images=images)
    require_utf8(dataset.root, "the image folder", "rename it, or give another: --images DIR")
    usable_splits(dataset, dataset.faults)  # before any work
    check_sentences(dataset, feature_config.sentence_graphs, preset)
    backbone = configured_backbone(feature_config)
    if preset.recipe is not None:
        backbone.preprocessing = replace(backbone.preprocessing, non_rgb=preset.recipe.non_rgb)
    return dataset, backbone


def assemble_context(
    dataset: Dataset,
    backbone: Backbone,
    seen: Prepared,
    *,
    preset: Preset,
    feature_config: FeatureConfig,
    evaluation: EvaluationSettings,
    execution: Execution,
    cache: Path,
    graphs: ReadGraphs | None = None,
) -> RunContext:
    """The context of data whose visual input is prepared, or known: splits, vocabulary and signature."""
    recipe = preset.recipe
    skipped = {**seen.skipped, **({} if graphs is None else graphs.bad)}
    splits = usable_splits(dataset, skipped)
    evaluated = {name: samples for name, samples in splits.items() if name not in TRAINING_SPLITS}
    drops_restval = recipe is not None and recipe.restval == "dropped"
    if drops_restval:
        splits["train"] = without_restval(dataset, splits["train"])
    preparation = recipe.captions if recipe is not None else "words"
    vocabulary = _build_vocabulary(
        counted_captions(dataset, splits["train"], preparation), preset.vocabulary, preparation
    )
    sentences = open_sentences(dataset, feature_config.sentence_graphs, preset, splits)
    signature = model_signature(
        preset,
        data=data_field(dataset, skipped, without_restval=drops_restval),
        nrefs=nrefs_field(evaluated),
        evaluation=evaluation,
        features=seen.described,
        vocabulary=vocabulary_field(vocabulary, preset.vocabulary.min_count),
        precision=execution.precision,
        sentences=None if sentences is None else sentences.described,
    )
    data = BenchmarkData(
        dataset=dataset,
        skipped=skipped,
        train=splits["train"],
        val=splits["val"],
        evaluated=evaluated,
        backbone=backbone,
        feature_config=feature_config,
        features=seen.features,
        cache=cache,
        grid=seen.grid,
        graphs=None if graphs is None else number_graphs(graphs, splits["train"], vocabulary),
        sentences=sentences,
    )
    inputs = ModelInputs(vocabulary, backbone.preprocessing, preset.decoding)
    return RunContext(data, inputs, execution, preset, signature)


def _build_vocabulary(captions: Iterable[str], config: VocabularyConfig, preparation: str) -> Vocabulary:
    if config.kind == "bpe":
        return SubwordVocabulary.build(captions, config.min_count, preparation, config.merges)
    return Vocabulary.build(captions, config.min_count, preparation)
