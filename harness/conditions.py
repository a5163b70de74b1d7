"""What every model of a benchmark meets alike: data, features, vocabulary, device, and the signature they make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from harness.config import FeatureConfig, Preset, VocabularyConfig
from harness.data import open_dataset
from harness.data.backbones import Backbone, open_backbone
from harness.data.batches import VisualSource
from harness.data.dataset import Dataset, Sample
from harness.data.feature_cache import extract_features
from harness.data.features import Features
from harness.data.images import ImagePreprocessing
from harness.data.pixels import Pictures
from harness.data.subwords import SubwordVocabulary
from harness.data.verify import find_bad_images
from harness.data.vocabulary import Vocabulary
from harness.errors import BenchError
from harness.metrics.evaluator import DF
from harness.metrics.tokenizer import TOKENIZER
from harness.progress import Reporter
from harness.signature import data_field, model_signature, nrefs_field, vocabulary_field
from harness.workspace import Workspace
from results.records import DatasetRecord, ImageRecord
from zoo.captioner import VisualSpec

TRAINING_SPLITS = ("train", "val")


@dataclass(frozen=True)
class Conditions:
    """Everything shared; `evaluated` holds the scored splits by name, `skipped` the reasons by image id."""

    dataset: Dataset
    skipped: dict[int, str]
    train: tuple[Sample, ...]
    val: tuple[Sample, ...]
    evaluated: dict[str, tuple[Sample, ...]]
    backbone: Backbone
    preprocessing: ImagePreprocessing
    feature_config: FeatureConfig
    features: Features
    vocabulary: Vocabulary
    preset: Preset
    device: torch.device
    precision: str
    signature: dict[str, str]

    def source(self, spec: VisualSpec) -> VisualSource:
        """Where a model with this `spec` looks: at the features, or at the pictures as the backbone gets them."""
        return Pictures(self.dataset, self.preprocessing) if spec.kind == "pixels" else self.features

    def record(self) -> DatasetRecord:
        """The data set as the store and the reports know it."""
        images = tuple(
            ImageRecord(sample.image_id, sample.file, split, sample.captions, sample.domain)
            for split, samples in self.evaluated.items()
            for sample in samples
        )
        return DatasetRecord(
            name=self.dataset.name,
            fingerprint=self.signature["data"],
            root=str(self.dataset.root.resolve()),
            split_sizes={name: len(samples) for name, samples in self.dataset.splits.items()},
            images=images,
            skipped={f"image {image_id}": reason for image_id, reason in sorted(self.skipped.items())},
        )


def prepare_conditions(
    data: str,
    *,
    images: Path | None,
    preset: Preset,
    feature_config: FeatureConfig,
    skip_bad_images: bool,
    device: torch.device,
    precision: str,
    workspace: Workspace,
    reporter: Reporter,
) -> Conditions:
    """Open the data, verify every picture, extract or re-use the features and build the vocabulary.

    Raises:
        BenchError: unreadable data, damaged pictures without `skip_bad_images`, an empty split, a wrong backbone.
    """
    dataset = open_dataset(data, cache_dir=workspace.cache, images=images)
    skipped = _check_pictures(dataset, skip_bad_images, workspace, reporter)
    splits = {
        name: tuple(sample for sample in samples if sample.image_id not in skipped)
        for name, samples in dataset.splits.items()
    }
    evaluated = {name: samples for name, samples in splits.items() if name not in TRAINING_SPLITS}
    for name in (*TRAINING_SPLITS, "test"):
        if not splits.get(name):
            raise BenchError(
                f"{data} has no usable image in its {name!r} split", "mark images with split train, val and test"
            )
    backbone = open_backbone(
        feature_config.backbone,
        weights=feature_config.weights,
        options=feature_config.options,
        image_size=feature_config.image_size,
        normalisation=feature_config.normalisation,
    )
    recipe = preset.recipe
    if recipe is not None:
        backbone.preprocessing = replace(backbone.preprocessing, non_rgb=recipe.non_rgb)
    count = len(dataset.samples) - len(skipped)
    with reporter.task(f"features ({backbone.name})", count) as task:
        features = extract_features(
            dataset,
            backbone,
            cache_dir=workspace.cache,
            skip=skipped,
            device=str(device),
            progress=lambda done, _: task.reach(done),
            notify=reporter.note,
        )
    preparation = recipe.captions if recipe is not None else "words"
    vocabulary = _build_vocabulary(splits["train"], preset.vocabulary, preparation)
    signature = model_signature(
        preset,
        data=data_field(dataset, skipped),
        nrefs=nrefs_field([sample for samples in evaluated.values() for sample in samples]),
        tokenizer=TOKENIZER,
        df=DF,
        features=backbone.describe(),
        vocabulary=vocabulary_field(vocabulary, preset.vocabulary.min_count),
        precision=precision,
    )
    return Conditions(
        dataset=dataset,
        skipped=skipped,
        train=splits["train"],
        val=splits["val"],
        evaluated=evaluated,
        backbone=backbone,
        preprocessing=backbone.preprocessing,
        feature_config=feature_config,
        features=features,
        vocabulary=vocabulary,
        preset=preset,
        device=device,
        precision=precision,
        signature=signature,
    )


def _build_vocabulary(train: Sequence[Sample], config: VocabularyConfig, preparation: str) -> Vocabulary:
    captions = (caption for sample in train for caption in sample.captions)
    if config.kind == "bpe":
        return SubwordVocabulary.build(captions, config.min_count, preparation, config.merges)
    return Vocabulary.build(captions, config.min_count, preparation)


def _check_pictures(
    dataset: Dataset, skip_bad_images: bool, workspace: Workspace, reporter: Reporter
) -> dict[int, str]:
    """Reasons by id of the images that cannot be used; BenchError naming them unless they may be skipped."""
    with reporter.task("pictures checked", len(dataset.samples)) as task:
        bad = find_bad_images(dataset, cache_dir=workspace.cache, progress=lambda done, _: task.reach(done))
    if not bad:
        return {}
    listing = _first_reasons(bad)
    if not skip_bad_images:
        raise BenchError(
            f"{len(bad)} of {len(dataset.samples)} images cannot be used:\n{listing}",
            "repair them, or add --skip-bad-images to go on without them (recorded with the results); "
            "`bench data verify` lists them all",
        )
    in_test = sum(sample.image_id in bad and sample.split not in TRAINING_SPLITS for sample in dataset.samples)
    reporter.note(f"{len(bad)} bad images skipped, {in_test} of them from evaluated splits; recorded with the results:")
    reporter.note(listing)
    return bad


def _first_reasons(bad: Mapping[int, str], most: int = 20) -> str:
    lines = [f"  {reason}" for _, reason in sorted(bad.items())[:most]]
    if len(bad) > most:
        lines.append(f"  and {len(bad) - most} more")
    return "\n".join(lines)
