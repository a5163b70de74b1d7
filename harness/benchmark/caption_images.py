"""Captions for image files or a data set, by a saved run."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from harness.benchmark.saved_model import SavedModel
from harness.config.features import FeatureConfig, GraphConfig, RegionSourceName
from harness.data.backbones.backbone import Backbone, open_backbone
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
from harness.data.vocabulary import Vocabulary
from harness.inference.attention import attention_records, check_attends, shown_parts
from harness.inference.generate import caption_images
from harness.utils.errors import BenchError
from harness.utils.progress import Reporter
from results.records import AttentionRecord
from zoo import Captioner
from zoo.captioner import VisualSpec
from zoo.registry import GraphKind


@dataclass(frozen=True, slots=True)
class Captioned:
    """Captions by image id, in the data's order, and the images that cannot be used."""

    captions: dict[int, str]
    unusable: tuple[BadImage, ...]


def of_files(paths: Sequence[Path]) -> Dataset:
    """Image files as a data set without captions; ids count the files from 0, each taken once."""
    samples = (Sample(number, str(path.absolute()), "test", ()) for number, path in enumerate(dict.fromkeys(paths)))
    return Dataset("own pictures", Path("/"), tuple(samples), "own pictures")


def of_numbered_files(paths: Sequence[Path]) -> Dataset:
    """Image files whose ids are the numbers that their names end with, as COCO's do: `000000000042.jpg` is 42."""
    files: dict[int, str] = {}
    for path in dict.fromkeys(paths):
        number = re.search(r"[0-9]{1,18}$", path.stem)
        if number is None or int(number[0]) in files:
            what = "has no image id at its end" if number is None else f"has the image id of {files[int(number[0])]}"
            raise BenchError(f"the name of {path} {what}", "regions are looked up by image id, as in 000000000042.jpg")
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
    """Caption every image of a data set as the run in `folder` was evaluated, but always in float32.

    Args:
        backbone_weights: where the backbone's weights lie now, if no longer where they lay in training.
        regions: the images' regions, by image id, for a model on regions.
        graphs: scene graphs of these regions, for a model that reads them.
        head: of attention maps, one head of the decoder in place of the mean over all.
        as_trained: without `regions` or `graphs`, read those of the source that the model was trained with.

    Raises:
        BenchError: the run cannot be read, the backbone's weights are missing or different, regions are needed, or
            attention maps are asked of a model without attention.
    """
    run = SavedModel.load(folder)
    shown, unusable = readable(images)
    if not shown.samples:
        return Captioned({}, unusable)
    with _opened(folder, _VisualInputs(run, shown, backbone_weights, regions, graphs, as_trained)) as opened:
        paths = {sample.image_id: shown.path(sample) for sample in shown.samples}
        if on_attention is not None:
            check_attends(run.model, opened.model, opened.source)
        captions = caption_images(
            opened.model,
            opened.vocabulary,
            opened.source,
            opened.ids,
            run.decoding if beam_size is None else run.decoding.model_copy(update={"beam_size": beam_size}),
            device=opened.device,
            precision="fp32",
            reporter=reporter,
            title="captioning",
        )
        if on_attention is not None:
            parts = shown_parts(shown, run.preprocessing)
            seen = (opened.model, opened.vocabulary, opened.source)
            for record in attention_records(*seen, captions.tokens, parts, device=opened.device, head=head):
                on_attention(paths[record.image_id], record)
    lacking = (BadImage(path, opened.bad[image_id]) for image_id, path in paths.items() if image_id in opened.bad)
    return Captioned(captions.by_image, (*unusable, *lacking))


@dataclass(frozen=True, slots=True)
class _Opened:
    """A run's model on its device, and what it reads of the images `ids`; `bad` says why it cannot read others."""

    model: Captioner
    vocabulary: Vocabulary
    source: VisualSource
    device: torch.device
    ids: list[int]
    bad: dict[int, str]


@dataclass(frozen=True, slots=True)
class _VisualInputs:
    """How a run sees images: what was moved or is new since its training, as `caption_dataset` is told."""

    run: SavedModel
    images: Dataset
    weights: Path | None = None
    regions: Path | RegionSourceName | None = None
    graphs: GraphConfig | None = None
    as_trained: bool = True

    def source(self, spec: VisualSpec, scratch: Path, device: torch.device) -> tuple[VisualSource, dict[int, str]]:
        """What the model reads of the images, as in training, and the reasons for images whose regions are unusable."""
        trained = None if spec.kind in {"pixels", "none"} else self.run.features.regions
        if trained is None and self.regions is not None:
            raise BenchError(f"--regions is for models on regions; {self.run.model} is none", "leave out --regions")
        if spec.kind == "pixels":
            return PixelSource(self.images, self.run.preprocessing, device), {}
        if spec.kind == "none":
            return NullSource(), {}
        extract = partial(extract_features, self.images, cache_dir=scratch, device=str(device))
        if trained is None:
            return extract(self._own_backbone()), {}
        anywhere = isinstance(trained.source, str) and trained.source != "boxes"  # windows
        source = self.regions or (trained.source if self.as_trained or anywhere else None)
        if source is None or needs_backbone(source) != needs_backbone(trained.source):
            kind = "a JSON of boxes" if needs_backbone(trained.source) else "files of region features like those"
            raise BenchError(
                f"the run was trained on regions ({trained.source}): it needs them for these images too",
                f"add --regions FILE, {kind}, by image id",
            )
        backbone = self._own_backbone() if needs_backbone(source) else open_backbone(FeatureConfig())
        config = trained.model_copy(update={"source": source})
        found = prepare_regions(self.images, config, backbone, lambda _bad: extract(backbone), cache_dir=scratch)
        if spec.kind != "regions+grid":
            return found, found.bad
        if needs_backbone(source):
            return both_streams(found, extract(backbone)), found.bad
        beside = prepare_file_grid(self.images, config, cache_dir=scratch, skip=found.bad)
        return both_streams(found, beside), found.bad | ({} if beside is None else beside.bad)

    def with_graphs(
        self, kind: GraphKind, vocabulary: Vocabulary, source: VisualSource, ids: Sequence[int]
    ) -> tuple[VisualSource, dict[int, str]]:
        """The source with what a model on scene graphs reads of them, and why images have no usable one."""
        features = self.run.features
        chosen = self.graphs or (features.graphs if self.as_trained else None)
        if chosen is None:
            raise BenchError(
                "the run was trained with scene graphs: it needs them for these images too",
                "add --graphs FILE.json, with a graph of each image's regions, by image id",
            )
        regions = source.counts(ids) if isinstance(source, RegionFeatures) else ()
        first = features.regions is not None and features.regions.as_listed
        counts = dict(zip(ids, regions, strict=False))
        found, without = check_graphs(open_graphs(chosen, self.images), ids, counts.get, first=first)
        return WithGraph(source, kind, found, self.run.graph_entries or (), vocabulary), without

    def _own_backbone(self) -> Backbone:
        settings = self.run.features
        weights = self.weights or settings.weights
        if isinstance(weights, Path) and not weights.is_file():
            raise BenchError(f"no backbone weights at {weights}", "add --backbone-weights FILE with their present path")
        backbone = open_backbone(settings.model_copy(update={"weights": weights}))
        if backbone.digest != self.run.backbone_digest:
            raise BenchError(
                f"the backbone {backbone.describe()} is not the one that the run was trained with",
                "add --backbone-weights FILE with the weights of the training",
            )
        if isinstance(self.run.preprocessing, ImagePreprocessing):  # models on pixels may have one of their own
            backbone.preprocessing = self.run.preprocessing
        return backbone


@contextmanager
def _opened(folder: Path, inputs: _VisualInputs) -> Iterator[_Opened]:
    model, vocabulary = inputs.run.build(folder)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with TemporaryDirectory(prefix="bench-caption-") as scratch:
        source, bad = inputs.source(replace(model.visual, graph="none"), Path(scratch), device)
        ids = [sample.image_id for sample in inputs.images.samples if sample.image_id not in bad]
        if model.visual.graph != "none":
            source, ungraphed = inputs.with_graphs(model.visual.graph, vocabulary, source, ids)
            ids, bad = [image_id for image_id in ids if image_id not in ungraphed], bad | ungraphed
        elif inputs.graphs is not None:
            raise BenchError("--graphs is for models that read scene graphs; this one does not", "leave out --graphs")
        yield _Opened(model.to(device), vocabulary, source, device, ids, bad)


def readable(images: Dataset) -> tuple[Dataset, tuple[BadImage, ...]]:
    """The data set with the pictures that can be read alone, and why the others cannot."""
    usable, unusable = [], []
    for sample in images.samples:
        try:
            load_image(images.path(sample))
            usable.append(sample)
        except BadImage as bad:
            unusable.append(bad)
    return replace(images, samples=tuple(usable)), tuple(unusable)
