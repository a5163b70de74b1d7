"""Captions for pictures of one's own, or of a data set, by a stored run."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import torch

from harness.config.features import FeatureConfig
from harness.data.backbones.backbone import Backbone
from harness.data.batches import VisualSource
from harness.data.dataset import Dataset, Sample
from harness.data.feature_cache import extract_features
from harness.data.features import NullSource
from harness.data.images import BadImage, ImagePreprocessing, load_image
from harness.data.pixels import PixelSource
from harness.data.prepare_features import configured_backbone
from harness.data.regions.cache import prepare_regions
from harness.data.regions.opening import needs_backbone
from harness.inference.attention import attention_records, check_attends, shown_parts
from harness.inference.generate import caption_images
from harness.runner.saved_model import SavedModel
from harness.utils.errors import BenchError
from harness.utils.progress import Reporter
from results.records import AttentionRecord
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


def of_numbered_files(paths: Sequence[Path]) -> Dataset:
    """Pictures anywhere whose ids are the numbers that their names end with, as COCO's do: `000000000042.jpg` is 42.

    Raises:
        BenchError: a name without a number, or two with the same.
    """
    files: dict[int, str] = {}
    for path in dict.fromkeys(paths):
        number = re.search(r"[0-9]{1,18}$", path.stem)
        if number is None or int(number[0]) in files:
            what = "has no image id at its end" if number is None else f"has the image id of {files[int(number[0])]}"
            raise BenchError(f"the name of {path} {what}", "regions are looked up by image id, as in 000000000042.jpg")
        files[int(number[0])] = str(path.absolute())
    samples = (Sample(image_id, file, "test", ()) for image_id, file in files.items())
    return Dataset("own pictures", Path("/"), tuple(samples), "own pictures")


def caption_pictures(
    pictures: Dataset,
    folder: Path,
    *,
    reporter: Reporter,
    beam_size: int | None = None,
    backbone_weights: Path | None = None,
    regions: Path | Literal["boxes"] | None = None,
    as_trained: bool = False,
    looked: Callable[[Path, AttentionRecord], None] | None = None,
) -> Captioned:
    """Caption every picture of a data set as the run in `folder` was evaluated, but in float32, whatever it trained in.

    Args:
        beam_size: in place of the run's.
        backbone_weights: where the backbone's weights lie now, if no longer where they lay in training.
        regions: the pictures' regions, by image id, for a run that sees regions.
        as_trained: where `regions` are not given, the source that the run was trained with knows these images too.
        looked: is told of each picture where the words of its caption looked.

    Raises:
        BenchError: the run cannot be read, the backbone's weights are gone or others, regions are needed, or it is to
            be told where words looked and the model does not attend.
    """
    run = SavedModel.load(folder)
    complaints = {sample.image_id: _complaint(pictures.path(sample)) for sample in pictures.samples}
    unusable = tuple(bad for bad in complaints.values() if bad is not None)
    usable = tuple(sample for sample in pictures.samples if complaints[sample.image_id] is None)
    if not usable:
        return Captioned({}, unusable)
    model, vocabulary = run.build(folder)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    decoding = run.decoding if beam_size is None else run.decoding.model_copy(update={"beam_size": beam_size})
    with TemporaryDirectory(prefix="bench-caption-") as scratch:
        shown = replace(pictures, samples=usable)
        source, bad = _source(run, model.visual, shown, backbone_weights, regions, as_trained, Path(scratch), device)
        paths = {sample.image_id: shown.path(sample) for sample in usable}
        unusable += tuple(BadImage(path, bad[image_id]) for image_id, path in paths.items() if image_id in bad)
        if looked is not None:
            check_attends(run.model, model, source)
        captions = caption_images(
            model.to(device),
            vocabulary,
            source,
            [image_id for image_id in paths if image_id not in bad],
            decoding,
            device=device,
            precision="fp32",
            reporter=reporter,
            title="captioning",
        )
        if looked is not None:
            parts = shown_parts(shown, run.preprocessing)
            for record in attention_records(model, vocabulary, source, captions.tokens, parts, device=device):
                looked(paths[record.image_id], record)
    return Captioned(captions.by_image, unusable)


def _complaint(path: Path) -> BadImage | None:
    try:
        load_image(path)
    except BadImage as bad:
        return bad
    return None


def _source(
    run: SavedModel,
    spec: VisualSpec,
    pictures: Dataset,
    weights: Path | None,
    regions: Path | Literal["boxes"] | None,
    as_trained: bool,
    scratch: Path,
    device: torch.device,
) -> tuple[VisualSource, dict[int, str]]:
    """The pictures as the model saw those that it was trained on, and what is wrong with the regions of some."""
    if spec.kind == "pixels":
        return PixelSource(pictures, run.preprocessing), {}
    if spec.kind == "none":
        return NullSource(), {}
    trained = run.features.regions
    if trained is None:
        if regions is not None:
            raise BenchError("the run sees grid cells, and --regions is for runs that see regions", "leave it out")
        return extract_features(pictures, _open_backbone(run, weights), cache_dir=scratch, device=str(device)), {}
    source = regions or (trained.source if as_trained else None)
    if source is None or needs_backbone(source) != needs_backbone(trained.source):
        kind = "a JSON of boxes" if needs_backbone(trained.source) else "files of region features like those"
        raise BenchError(
            f"the run sees regions (it was trained on {trained.source}): it needs them for these pictures too",
            f"add --regions FILE, {kind}, by image id",
        )
    backbone = _open_backbone(run, weights) if needs_backbone(source) else configured_backbone(FeatureConfig())
    found = prepare_regions(
        pictures,
        trained.model_copy(update={"source": source}),
        backbone,
        lambda _bad: extract_features(pictures, backbone, cache_dir=scratch, device=str(device)),
        cache_dir=scratch,
    )
    return found, found.bad


def _open_backbone(run: SavedModel, moved_to: Path | None) -> Backbone:
    settings = run.features
    weights = moved_to or settings.weights
    if isinstance(weights, Path) and not weights.is_file():
        raise BenchError(f"no backbone weights at {weights}", "add --backbone-weights FILE: where do they lie now?")
    backbone = configured_backbone(settings.model_copy(update={"weights": weights}))
    if backbone.digest != run.backbone_digest:
        raise BenchError(
            f"the backbone {backbone.describe()} is another than the run was trained with",
            "add --backbone-weights FILE with the weights of the training",
        )
    if isinstance(run.preprocessing, ImagePreprocessing):  # a processor of its own comes with pixels alone
        backbone.preprocessing = run.preprocessing
    return backbone
