"""Captions for image files or a data set, by a saved run."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from harness.benchmark.saved_model import SavedModel
from harness.config.features import FeatureConfig, GraphConfig, RegionSourceName
from harness.data.backbones.backbone import Backbone
from harness.data.backbones.opening import open_backbone
from harness.data.batches import VisualSource
from harness.data.dataset import Dataset, Sample
from harness.data.feature_cache import extract_features
from harness.data.features import NullSource
from harness.data.graph_source import WithGraph, check_graphs, open_graphs
from harness.data.images import BadImage, ImagePreprocessing, load_image
from harness.data.pixels import PixelSource
from harness.data.regions.cache import prepare_file_grid, prepare_regions
from harness.data.regions.features import RegionFeatures, both_streams
from harness.data.regions.opening import needs_backbone
from harness.inference.attention import attention_records, check_attends, shown_parts
from harness.inference.generate import caption_images, encode_images
from harness.utils.errors import BenchError
from harness.utils.progress import Reporter
from results.records import AttentionRecord
from zoo.captioner import VisualSpec
from zoo.kinds import GraphKind


@dataclass(frozen=True, slots=True)
class Captioned:
    """Captions by image id, in the data's order, and the images that cannot be used."""

    captions: dict[int, str]
    unusable: tuple[BadImage, ...]


@dataclass(frozen=True, slots=True)
class Encoded:
    """Outputs of the encoder: `features` of `encode_images`, one row for each of `ids`, and images that failed."""

    features: Tensor
    ids: list[int]
    unusable: tuple[BadImage, ...]


def of_files(paths: Sequence[Path]) -> Dataset:
    """Image files as a data set without captions; ids count the files from 0, each taken once."""
    samples = (Sample(image_id, str(path.absolute()), "test", ()) for image_id, path in enumerate(dict.fromkeys(paths)))
    return Dataset("own pictures", Path("/"), tuple(samples), "own pictures")


def of_numbered_files(paths: Sequence[Path]) -> Dataset:
    """Image files whose ids are the numbers that their names end with, as COCO's do: `000000000042.jpg` is 42."""
    files: dict[int, str] = {}
    for path in dict.fromkeys(paths):
        number = re.search(r"[0-9]{1,18}$", path.stem)
        if number is None or int(number[0]) in files:
            problem = "has no image id at its end" if number is None else f"has the image id of {files[int(number[0])]}"
            raise BenchError(
                f"the name of {path} {problem}", "regions are looked up by image id, as in 000000000042.jpg"
            )
        files[int(number[0])] = str(path.absolute())
    samples = (Sample(image_id, file, "test", ()) for image_id, file in files.items())
    return Dataset("own pictures", Path("/"), tuple(samples), "own pictures")


def caption_dataset(
    images: Dataset,
    folder: Path,
    *,
    reporter: Reporter,
    beam_size: int | None = None,
    backbone_weights: Path | None = None,
    regions: Path | RegionSourceName | None = None,
    graphs: GraphConfig | None = None,
    as_trained: bool = False,
    on_attention: Callable[[Path, AttentionRecord], None] | None = None,
    head: int | None = None,
) -> Captioned:
    """Caption every image of a data set with the run in `folder`: `LoadedRun` has the arguments and errors."""
    usable, unusable = readable(images)
    if not usable.samples:
        return Captioned({}, unusable)
    run = LoadedRun(folder, InputOptions(backbone_weights, regions, graphs, as_trained))
    captioned = run.caption(usable, reporter=reporter, beam_size=beam_size, on_attention=on_attention, head=head)
    return Captioned(captioned.captions, (*unusable, *captioned.unusable))


@dataclass(frozen=True, slots=True)
class InputOptions:
    """The inputs of a stored run for new images.

    Attributes:
        backbone_weights: the path of the backbone's weights, if it has changed since training.
        regions: the images' regions, by image id, for a model on regions.
        graphs: scene graphs of these regions, for a model that reads them.
        as_trained: without `regions` or `graphs`, read those of the source that the model was trained with.
    """

    backbone_weights: Path | None = None
    regions: Path | RegionSourceName | None = None
    graphs: GraphConfig | None = None
    as_trained: bool = False


@dataclass(frozen=True, slots=True)
class _Opened:
    """The model's input for the images `ids`; `bad` has the reason for each image without one."""

    source: VisualSource
    ids: list[int]
    bad: dict[int, str]


class LoadedRun:
    """The model of the run in `folder`, built once, to caption or encode images as the run was evaluated.

    It computes in float32, on a GPU if there is one.

    Raises:
        BenchError: the run cannot be read or built. From methods: the backbone's weights are missing or different,
            regions are needed, or the model has no attention maps.
    """

    def __init__(self, folder: Path, options: InputOptions = InputOptions()) -> None:
        self.folder = folder
        self.options = options
        self.saved = SavedModel.load(folder)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        model, self.vocabulary = self.saved.build(folder)
        self.model = model.to(self.device)

    def caption(
        self,
        images: Dataset,
        *,
        reporter: Reporter,
        beam_size: int | None = None,
        on_attention: Callable[[Path, AttentionRecord], None] | None = None,
        head: int | None = None,
    ) -> Captioned:
        """Caption every image that has the model's inputs; all are `readable`.

        Args:
            beam_size: the run's own if None.
            on_attention: gets the attention maps of every image.
            head: of attention maps, one head of the decoder in place of the mean over all.
        """
        decoding = self.saved.decoding
        if beam_size is not None:
            decoding = decoding.model_copy(update={"beam_size": beam_size})
        with self._open(images) as opened:
            paths = {sample.image_id: images.path(sample) for sample in images.samples}
            if on_attention is not None:
                check_attends(self.saved.model, self.model, opened.source)
            captions = caption_images(
                self.model,
                self.vocabulary,
                opened.source,
                opened.ids,
                decoding,
                device=self.device,
                precision="fp32",
                reporter=reporter,
                title="captioning",
            )
            if on_attention is not None:
                parts = shown_parts(images, self.saved.preprocessing)
                records = attention_records(
                    self.model,
                    self.vocabulary,
                    opened.source,
                    captions.tokens,
                    parts,
                    device=self.device,
                    head=head,
                )
                for record in records:
                    on_attention(paths[record.image_id], record)
        return Captioned(captions.by_image, _bad_images(images, opened))

    def encode(self, images: Dataset) -> Encoded:
        """The encoder's output for every image that has the model's inputs; all are `readable`."""
        with self._open(images) as opened:
            features = torch.empty(0, 0, 0)
            if opened.ids:
                features = encode_images(self.model, opened.source, opened.ids, device=self.device)
        return Encoded(features, opened.ids, _bad_images(images, opened))

    @contextmanager
    def _open(self, images: Dataset) -> Iterator[_Opened]:
        spec = self.model.visual
        with TemporaryDirectory(prefix="bench-caption-") as scratch:
            source, bad = self._source(images, replace(spec, graph="none"), Path(scratch))
            ids = [sample.image_id for sample in images.samples if sample.image_id not in bad]
            if spec.graph != "none":
                source, ungraphed = self._with_graphs(images, spec.graph, source, ids)
                ids = [image_id for image_id in ids if image_id not in ungraphed]
                bad = bad | ungraphed
            elif self.options.graphs is not None:
                raise BenchError(
                    "--graphs is for models that read scene graphs; this one does not", "leave out --graphs"
                )
            yield _Opened(source, ids, bad)

    def _source(self, images: Dataset, spec: VisualSpec, scratch: Path) -> tuple[VisualSource, dict[int, str]]:
        """The features or regions of the images, as in training, and the reasons for images without usable regions."""
        trained = None if spec.kind in {"pixels", "none"} else self.saved.features.regions
        if trained is None and self.options.regions is not None:
            raise BenchError(f"--regions is for models on regions; {self.saved.model} is none", "leave out --regions")
        if spec.kind == "pixels":
            return PixelSource(images, self.saved.preprocessing, self.device), {}
        if spec.kind == "none":
            return NullSource(), {}
        extract = partial(extract_features, images, cache_dir=scratch, device=str(self.device))
        if trained is None:
            return extract(self._backbone), {}
        source = self.options.regions
        is_windows = isinstance(trained.source, str) and trained.source != "boxes"
        if source is None and (self.options.as_trained or is_windows):
            source = trained.source
        if source is None or needs_backbone(source) != needs_backbone(trained.source):
            kind = "a JSON of boxes" if needs_backbone(trained.source) else "files of region features like those"
            raise BenchError(
                f"the run was trained on regions ({trained.source}): it needs them for these images too",
                f"add --regions FILE, {kind}, by image id",
            )
        backbone = self._backbone if needs_backbone(source) else open_backbone(FeatureConfig())
        config = trained.model_copy(update={"source": source})
        regions = prepare_regions(images, config, backbone, lambda _bad: extract(backbone), cache_dir=scratch)
        if spec.kind != "regions+grid":
            return regions, regions.bad
        if needs_backbone(source):
            return both_streams(regions, extract(backbone)), regions.bad
        grid = prepare_file_grid(images, config, cache_dir=scratch, skip=regions.bad)
        return both_streams(regions, grid), regions.bad | ({} if grid is None else grid.bad)

    def _with_graphs(
        self, images: Dataset, kind: GraphKind, source: VisualSource, ids: Sequence[int]
    ) -> tuple[VisualSource, dict[int, str]]:
        """The source with scene graphs added, and the reasons for images without a usable graph."""
        features = self.saved.features
        config = self.options.graphs or (features.graphs if self.options.as_trained else None)
        if config is None:
            raise BenchError(
                "the run was trained with scene graphs: it needs them for these images too",
                "add --graphs FILE.json, with a graph of each image's regions, by image id",
            )
        regions = source.counts(ids) if isinstance(source, RegionFeatures) else ()
        first = features.regions is not None and features.regions.as_listed
        counts = dict(zip(ids, regions, strict=False))
        graphs, unusable = check_graphs(open_graphs(config, images), ids, counts.get, first=first)
        return WithGraph(source, kind, graphs, self.saved.graph_entries or (), self.vocabulary), unusable

    @cached_property
    def _backbone(self) -> Backbone:
        """The backbone that the run was trained with."""
        settings = self.saved.features
        weights = self.options.backbone_weights or settings.weights
        if isinstance(weights, Path) and not weights.is_file():
            raise BenchError(f"no backbone weights at {weights}", "add --backbone-weights FILE with their present path")
        backbone = open_backbone(settings.model_copy(update={"weights": weights}))
        if backbone.digest != self.saved.backbone_digest:
            raise BenchError(
                f"the backbone {backbone.describe()} is not the one that the run was trained with",
                "add --backbone-weights FILE with the weights of the training",
            )
        if isinstance(self.saved.preprocessing, ImagePreprocessing):  # models on pixels may have one of their own
            backbone.preprocessing = self.saved.preprocessing
        return backbone


def _bad_images(images: Dataset, opened: _Opened) -> tuple[BadImage, ...]:
    """The images that the model cannot read, in the data's order."""
    return tuple(
        BadImage(images.path(sample), opened.bad[sample.image_id])
        for sample in images.samples
        if sample.image_id in opened.bad
    )


def readable(images: Dataset) -> tuple[Dataset, tuple[BadImage, ...]]:
    """The data set with only the images that can be read, and the errors of the others."""
    usable: list[Sample] = []
    unusable: list[BadImage] = []
    for sample in images.samples:
        try:
            load_image(images.path(sample))
            usable.append(sample)
        except BadImage as bad:
            unusable.append(bad)
    return replace(images, samples=tuple(usable)), tuple(unusable)
