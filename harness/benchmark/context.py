"""The context that runs are executed in: the data, each model's inputs, the device, and the signature they make."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import torch

from harness.benchmark.signature import DataFields, data_field, model_signature, nrefs_field, vocabulary_field
from harness.config.evaluation import TokenizerName
from harness.config.execution import ExecutionConfig
from harness.config.features import FeatureConfig
from harness.config.preset import Decoding, Preset
from harness.config.run import Conditions, MadeFrom
from harness.data.backbones.backbone import Backbone
from harness.data.backbones.opening import open_backbone
from harness.data.batches import VisualSource
from harness.data.convert import working_rule
from harness.data.dataset import Dataset, Sample
from harness.data.encoding import build_vocabulary
from harness.data.feature_cache import Spread
from harness.data.features import NullSource
from harness.data.formats.look import cut_references, refuse_unspaced
from harness.data.graph_source import ImageGraphs, WithGraph, number_graphs, prepare_graphs
from harness.data.graphs import SentenceGraphs
from harness.data.opening import open_dataset
from harness.data.pixels import PixelSource, Preprocessing
from harness.data.prepare_features import (
    TRAINING_SPLITS,
    Prepared,
    missing_features,
    prepare_features,
    warn_of_preprocessing,
)
from harness.data.regions.features import VisualFeatures, both_streams
from harness.data.verify import has_pictures
from harness.data.vocabulary import PREPARATIONS, Vocabulary, choose_preparation, counted_captions
from harness.metrics.signature import DEFAULT_SETTINGS, EvaluationSettings
from harness.metrics.spice import find_spice
from harness.training.sentence_graphs import check_sentences, open_sentences
from harness.utils.errors import BenchError
from harness.utils.files import require_utf8
from harness.utils.precision import set_products
from harness.utils.progress import Reporter
from harness.utils.workspace import Workspace
from results.records import DatasetRecord, ImageRecord
from zoo.captioner import VisualSpec
from zoo.kinds import GraphKind, VisualKind

_FEW_TO_VALIDATE = 20


@dataclass(frozen=True)
class BenchmarkData:
    """The data that all models of a benchmark share.

    Attributes:
        skipped: reasons by image id.
        evaluated: the scored splits by name; with a limit, the first images of each.
        features: None if no model of the benchmark reads any.
        grid: the cells of the grid besides regions; None if no model reads both, or if regions have their own source.
        graphs: scene graphs; None if no model reads any, or none are given.
        sentences: scene graphs of the training and validation captions; None if no stage reads any.
        fields: of the data, for signatures.
    """

    dataset: Dataset
    skipped: dict[int, str]
    train: tuple[Sample, ...]
    val: tuple[Sample, ...]
    evaluated: dict[str, tuple[Sample, ...]]
    limit: int | None
    backbone: Backbone
    feature_config: FeatureConfig
    features: VisualFeatures | None
    cache: Path
    fields: DataFields
    grid: VisualFeatures | None = None
    graphs: ImageGraphs | None = None
    sentences: SentenceGraphs | None = None

    @property
    def visual_dim(self) -> int:
        """Channels of the features, whether or not they are needed here."""
        return self.backbone.dim if self.features is None else self.features.dim

    def left_out(self) -> set[int]:
        """The images of the scored splits that are not scored: those that are skipped, and those beyond the limit."""
        scored = {sample.image_id for samples in self.evaluated.values() for sample in samples}
        splits = {name: self.dataset.splits[name] for name in self.evaluated}
        return {sample.image_id for samples in splits.values() for sample in samples} - scored

    def typical_image(self) -> int:
        """The test image to measure costs with."""
        ids = [sample.image_id for sample in self.evaluated["test"]]
        return ids[0] if self.features is None else self.features.typical(ids)

    def record(self, fingerprint: str) -> DatasetRecord:
        """The data set's record for the store and reports."""
        images = tuple(
            ImageRecord(sample.image_id, sample.file, split, sample.captions, sample.domain)
            for split, samples in self.evaluated.items()
            for sample in samples
        )
        return DatasetRecord(
            name=self.dataset.name if self.limit is None else f"{self.dataset.name} (first {self.limit} images)",
            fingerprint=fingerprint,
            root=str(self.dataset.root.resolve()),
            split_sizes={name: len(samples) for name, samples in self.dataset.splits.items()},
            images=images,
            skipped={f"image {image_id}": reason for image_id, reason in sorted(self.skipped.items())},
        )


@dataclass(frozen=True)
class ModelInputs:
    """Vocabulary, preprocessing and decoding of one model; a pretrained or saved model has its own.

    `graph_entries` are those of a saved model (`ImageGraphs.entries`); None uses the data's.
    """

    vocabulary: Vocabulary
    preprocessing: Preprocessing
    decoding: Decoding
    graph_entries: tuple[str, ...] | None = None


@dataclass(frozen=True)
class ComputeDevice:
    """The device and precision of a run; `settings` has the numbers of devices and of jobs."""

    device: torch.device
    precision: str
    settings: ExecutionConfig = field(default_factory=ExecutionConfig)


@dataclass(frozen=True)
class RunContext:
    """The opened data and device of a benchmark, with the preset and evaluation settings of a run."""

    data: BenchmarkData
    inputs: ModelInputs
    compute: ComputeDevice
    preset: Preset
    made_from: MadeFrom | None = None
    evaluation: EvaluationSettings = DEFAULT_SETTINGS

    @property
    def signature(self) -> dict[str, str]:
        """The signature of trained models; for a tuned model, size and schedule are those before tuning."""
        signed = model_signature(
            self.preset, self.data.fields, precision=self.compute.precision, evaluation=self.evaluation
        )
        if self.made_from is not None and self.made_from.tuned is not None:
            signed |= {"size": self.made_from.size, "schedule": self.made_from.schedule}
            signed["tuned"] = self.made_from.tuned.label
        return signed

    def with_preset(self, preset: Preset, made_from: MadeFrom | None = None) -> Self:
        """The context of a run by another preset, of the same vocabulary and decoding."""
        return replace(self, preset=preset, made_from=made_from)

    def updates(self) -> tuple[int, ...]:
        """The optimiser steps of each stage of the preset, without an early stop; the same for every model."""
        return tuple(stage.epochs * stage.steps_per_epoch(*self.counts()) for stage in self.preset.schedule.stages)

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes of the data that every model is created with."""
        return {"vocab_size": len(self.inputs.vocabulary), "visual_dim": self.data.visual_dim}

    def counts(self) -> tuple[int, int]:
        """The images and captions that models are trained on."""
        return len(self.data.train), sum(len(sample.captions) for sample in self.data.train)

    def source(self, spec: VisualSpec) -> VisualSource:
        """The visual inputs of a model with this `spec`: features, or preprocessed images."""
        if spec.graph != "none":
            if self.data.graphs is None:
                raise BenchError(
                    "the model needs a scene graph of each image, and none are given",
                    "add --graphs scenes or --graphs FILE.json, with --regions; or leave the model out",
                )
            source = self.source(replace(spec, graph="none"))
            entries = self.graph_entries(spec.graph)
            return WithGraph(source, spec.graph, self.data.graphs.graphs, entries, self.inputs.vocabulary)
        if spec.kind == "pixels":
            return PixelSource(self.data.dataset, self.inputs.preprocessing, self.compute.device)
        if spec.kind == "regions+grid":
            return both_streams(self.data.features, self.data.grid)
        return self.data.features or NullSource()

    def graph_entries(self, kind: GraphKind) -> tuple[str, ...]:
        """The entries of graphs that are not words of the vocabulary; none without graphs."""
        if self.inputs.graph_entries is not None or self.data.graphs is None:
            return self.inputs.graph_entries or ()
        return self.data.graphs.entries[kind]


Check = Callable[[Dataset], None]
"""Raises BenchError, before any work, for data that the benchmark's rows cannot use."""


def open_context(
    conditions: Conditions,
    workspace: Workspace,
    reporter: Reporter,
    *,
    check: Check = lambda _: None,
    spread: Spread | None = None,
    make: bool = True,
    opened: tuple[Dataset, Backbone] | None = None,
) -> RunContext:
    """Open the data, check every image, extract or re-use the features and build the vocabulary.

    BenchError for unreadable data, an empty split or a wrong backbone, and from `check` and `prepare_features`.

    Args:
        make: whether to extract missing features; without them, a context can only be used to plan.
        opened: data and backbone, if the caller has opened them by `open_inputs`.
    """
    preset = conditions.preset
    config = conditions.located_features()
    device = torch.device(conditions.execution.device)
    data_conditions = conditions.data
    dataset, backbone = opened or open_inputs(conditions, workspace, reporter)
    for note in dataset.notes:
        reporter.note(note, style="yellow")
    check(dataset)
    if data_conditions.limit is not None:  # before any work
        first_images(scored_splits(dataset.splits), data_conditions.limit)
    sees = visual_kinds(data_conditions.sees, dataset)
    warn_of_preprocessing(config, sees, reporter)
    if not make and missing_features(dataset, config, backbone, sees=sees, cache_dir=workspace.cache):
        prepared = Prepared(None, backbone.describe(), dict(dataset.faults))
    else:
        prepared = prepare_features(
            dataset,
            config,
            backbone,
            sees=sees,
            cache_dir=workspace.cache,
            may_skip=data_conditions.skip_bad_images,
            device=device,
            reporter=reporter,
            spread=spread,
        )
    may_skip = data_conditions.skip_bad_images
    graphs = prepare_graphs(dataset, config, prepared, data_conditions.graphs, may_skip=may_skip, reporter=reporter)
    unknown = data_conditions.left_out.keys() - {sample.image_id for sample in dataset.samples}
    if unknown:
        raise BenchError(
            f"left_out names images that {dataset.name} does not have: {', '.join(map(str, sorted(unknown)[:10]))}",
            "name images by their ids in the data",
        )
    skipped = {**prepared.skipped, **({} if graphs is None else graphs.bad), **data_conditions.left_out}
    splits = usable_splits(dataset, skipped)
    evaluated = scored_splits(splits)
    if data_conditions.limit is not None:
        evaluated = first_images(evaluated, data_conditions.limit)
    recipe = preset.recipe
    drops_restval = recipe is not None and recipe.restval == "dropped" and not dataset.is_references
    if drops_restval:
        splits["train"] = tuple(sample for sample in splits["train"] if not sample.restval)
        if not splits["train"]:
            raise BenchError(
                f"recipe.restval is dropped, and all training images of {dataset.name} are of its split 'restval'",
                "add --set recipe.restval=train",
            )
    words = preset.vocabulary
    preparation = choose_preparation("words" if recipe is None else recipe.captions, conditions.tokenizer)
    with reporter.step("Building the vocabulary"):
        captions = list(counted_captions(dataset, splits.get("train", ()), preparation))
        vocabulary = build_vocabulary(captions, words, preparation, workspace.cache)
    sentences = open_sentences(dataset, config.sentence_graphs, preset, splits)
    fields = DataFields(
        data=data_field(dataset, skipped, without_restval=drops_restval, limit=data_conditions.limit),
        nrefs=nrefs_field(evaluated),
        features=prepared.described,
        vocabulary=vocabulary_field(vocabulary, words.min_count),
        sentences=None if sentences is None else sentences.described,
    )
    data = BenchmarkData(
        dataset=dataset,
        skipped=skipped,
        train=splits.get("train", ()),
        val=splits.get("val", ()),
        evaluated=evaluated,
        limit=data_conditions.limit,
        backbone=backbone,
        feature_config=config,
        features=prepared.features,
        cache=workspace.cache,
        fields=fields,
        grid=prepared.grid,
        graphs=None
        if graphs is None or config.graphs is None
        else number_graphs(graphs, config.graphs, data_conditions.graphs, splits["train"], vocabulary),
        sentences=sentences,
    )
    inputs = ModelInputs(vocabulary, backbone.preprocessing, preset.decoding)
    set_products(device, conditions.precision)
    return RunContext(
        data,
        inputs,
        ComputeDevice(device, conditions.precision, conditions.execution),
        preset,
        evaluation=EvaluationSettings(
            tokenizer=conditions.tokenizer, language=conditions.language, spice=find_spice() is not None
        ),
    )


def open_inputs(
    conditions: Conditions, workspace: Workspace, reporter: Reporter | None = None
) -> tuple[Dataset, Backbone]:
    """Open the data and the backbone of their features; BenchError as `open_context`."""
    files = conditions.files
    features = conditions.located_features()
    if files.data is None:
        raise BenchError("files.data is missing: where the data set lies", "add --set files.data=FOLDER")
    dataset = open_dataset(files.data, cache_dir=workspace.cache, images=files.images, reporter=reporter)
    require_utf8(dataset.root, "the image folder", "rename it, or give another: --images DIR")
    usable_splits(dataset, dataset.faults)  # before any work
    check_sentences(dataset, features.sentence_graphs, conditions.preset)
    backbone = open_backbone(features)
    if conditions.preset.recipe is not None:
        backbone.preprocessing = replace(backbone.preprocessing, non_rgb=conditions.preset.recipe.non_rgb)
    return dataset, backbone


def visual_kinds(sees: Sequence[VisualKind], dataset: Dataset) -> Sequence[VisualKind]:
    """The visual inputs of rows; for rows without any, "none" if there are images, which are then checked."""
    if sees:
        return sees
    if dataset.is_references or not has_pictures(dataset):
        return ()
    return ("none",)


def check_captions(
    dataset: Dataset, preset: Preset, *, trains: bool, reporter: Reporter, tokenizer: TokenizerName = "python"
) -> None:
    """Check the captions before any work; notes small validation splits, and captions that training cuts.

    BenchError if the tokenizer finds no words in captions, if the vocabulary would be empty, or if the validation split
    has a single image.

    Args:
        trains: whether a row uses the training captions.
    """
    for name, samples in dataset.splits.items():
        captions = [caption for sample in samples for caption in sample.captions]
        refuse_unspaced(captions, f"the split {name}", tokenizer)
    if dataset.is_references or not trains:
        return
    validating = len(dataset.splits.get("val", ()))
    if validating == 1:
        hint = "give it twenty images or more"
        rule = working_rule(sample.file for sample in dataset.samples)
        if rule:
            hint += f": bench data convert splits their source anew with --split-by {rule}"
        raise BenchError(
            "the val split has one image, whose CIDEr-D is always 0: the weights of the first epoch would be kept", hint
        )
    if validating < _FEW_TO_VALIDATE:
        reporter.note(
            f"the val split has {validating} images: which epoch is best is hardly known from so few", style="yellow"
        )
    words = preset.vocabulary
    recipe = preset.recipe
    if words.kind != "words":
        return
    preparation = choose_preparation("words" if recipe is None else recipe.captions, tokenizer)
    tokenize = PREPARATIONS[preparation].tokenize
    counts: Counter[str] = Counter()
    lengths: list[int] = []
    with reporter.step("Reading the captions"):
        captions = list(counted_captions(dataset, dataset.splits.get("train", ()), preparation))
        for caption in captions:
            tokens = tokenize(caption)
            counts.update(tokens)
            lengths.append(len(tokens))
    if max(counts.values(), default=0) < words.min_count:
        raise BenchError(
            f"no word of the training captions occurs {words.min_count} times: the vocabulary would be empty",
            "add --set vocabulary.min_count=1, or give more captions",
        )
    note = cut_references(captions, lengths, preset)
    if note:
        reporter.note(note, style="yellow")


def splits_with_lone_references(splits: Mapping[str, Sequence[Sample]]) -> list[str]:
    """The scored splits where no image has a second reference, so that `human` cannot be scored."""
    return [
        name
        for name, samples in splits.items()
        if name not in TRAINING_SPLITS and all(len(sample.captions) < 2 for sample in samples)
    ]


def scored_splits(splits: Mapping[str, tuple[Sample, ...]]) -> dict[str, tuple[Sample, ...]]:
    return {name: samples for name, samples in splits.items() if name not in TRAINING_SPLITS}


def first_images(splits: Mapping[str, tuple[Sample, ...]], limit: int) -> dict[str, tuple[Sample, ...]]:
    """The first images of each split, in the data set's order; BenchError if no split has more images."""
    largest = max(len(samples) for samples in splits.values())
    if limit >= largest:
        raise BenchError(
            f"--limit {limit}: no scored split has more images; the largest has {largest}",
            "leave --limit out, or name a lower number",
        )
    return {name: samples[:limit] for name, samples in splits.items()}


def usable_splits(dataset: Dataset, skipped: Collection[int]) -> dict[str, tuple[Sample, ...]]:
    """Usable images by split; BenchError if a required split has none."""
    splits = {
        name: tuple(sample for sample in samples if sample.image_id not in skipped)
        for name, samples in dataset.splits.items()
    }
    for name in ("test",) if dataset.is_references else (*TRAINING_SPLITS, "test"):
        if not splits.get(name):
            raise BenchError(
                f"{dataset.name} has no usable image in its {name!r} split",
                "mark images with split train, val and test",
            )
    return splits
