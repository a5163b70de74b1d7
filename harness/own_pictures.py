"""Captions for pictures of one's own, or of a data set, by a stored run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from harness.captioning import caption_images
from harness.data.backbones import Backbone, open_backbone
from harness.data.batches import VisualSource
from harness.data.dataset import Dataset, Sample
from harness.data.feature_cache import extract_features
from harness.data.images import BadImage, load_image
from harness.data.pixels import Pictures
from harness.errors import BenchError
from harness.progress import Reporter
from harness.stored_run import StoredRun
from zoo.captioner import VisualSpec


@dataclass(frozen=True, slots=True)
class Captioned:
    """Captions by image id, in the data's order, and the pictures that cannot be used."""

    captions: dict[int, str]
    unusable: tuple[BadImage, ...]


def of_files(paths: Sequence[Path]) -> Dataset:
    """Pictures anywhere as a data set without captions; ids count the files, each taken once, from 0."""
    samples = (Sample(number, str(path.absolute()), "test", ()) for number, path in enumerate(dict.fromkeys(paths)))
    return Dataset("own pictures", Path("/"), tuple(samples), "own pictures")


def caption_pictures(
    pictures: Dataset,
    folder: Path,
    *,
    reporter: Reporter,
    beam_size: int | None = None,
    backbone_weights: Path | None = None,
) -> Captioned:
    """Caption every picture of a data set as the run in `folder` was evaluated.

    Args:
        beam_size: in place of the run's.
        backbone_weights: where the backbone's weights lie now, if no longer where they lay in training.

    Raises:
        BenchError: the run cannot be read, or the backbone's weights are gone or others.
    """
    run = StoredRun.load(folder)
    complaints = {sample.image_id: _complaint(pictures.path(sample)) for sample in pictures.samples}
    unusable = tuple(bad for bad in complaints.values() if bad is not None)
    usable = tuple(sample for sample in pictures.samples if complaints[sample.image_id] is None)
    if not usable:
        return Captioned({}, unusable)
    model, vocabulary = run.build(folder)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    decoding = run.decoding if beam_size is None else run.decoding.model_copy(update={"beam_size": beam_size})
    with TemporaryDirectory(prefix="bench-caption-") as scratch:
        captions = caption_images(
            model.to(device),
            vocabulary,
            _source(run, model.visual, replace(pictures, samples=usable), backbone_weights, Path(scratch), device),
            [sample.image_id for sample in usable],
            decoding,
            device=device,
            reporter=reporter,
            title="captioning",
        )
    return Captioned(captions.by_image, unusable)


def _complaint(path: Path) -> BadImage | None:
    try:
        load_image(path)
    except BadImage as bad:
        return bad
    return None


def _source(
    run: StoredRun, spec: VisualSpec, pictures: Dataset, weights: Path | None, scratch: Path, device: torch.device
) -> VisualSource:
    """The pictures as the model saw those that it was trained on."""
    if spec.kind == "pixels":
        return Pictures(pictures, run.preprocessing)
    backbone = _open_backbone(run, weights)
    return extract_features(pictures, backbone, cache_dir=scratch, device=str(device))


def _open_backbone(run: StoredRun, moved_to: Path | None) -> Backbone:
    settings = run.features
    weights = moved_to or settings.weights
    if isinstance(weights, Path) and not weights.is_file():
        raise BenchError(f"no backbone weights at {weights}", "add --backbone-weights FILE: where do they lie now?")
    backbone = open_backbone(
        settings.backbone,
        weights=weights,
        options=settings.options,
        image_size=settings.image_size,
        normalisation=settings.normalisation,
    )
    if backbone.digest != run.backbone_digest:
        raise BenchError(
            f"the backbone {backbone.describe()} is another than the run was trained with",
            "add --backbone-weights FILE with the weights of the training",
        )
    backbone.preprocessing = run.preprocessing
    return backbone
