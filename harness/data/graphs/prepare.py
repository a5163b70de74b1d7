"""Open the scene graphs that `--graphs` names, and check them against the regions of a run's images."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.config.features import FeatureConfig, GraphConfig
from harness.data.dataset import Dataset, Sample
from harness.data.graphs.contract import SceneGraph
from harness.data.graphs.files import check_file, read_graphs
from harness.data.graphs.image_numbers import ImageGraphs, graph_entries
from harness.data.graphs.scenes import scenes_graphs
from harness.data.graphs.source import GraphSource
from harness.data.prepare_features import Prepared, skip_or_refuse
from harness.data.regions.features import RegionFeatures
from harness.data.vocabulary import Vocabulary
from harness.utils.errors import BenchError
from harness.utils.progress import Reporter
from zoo.captioner import GraphKind


@dataclass(frozen=True, slots=True)
class ReadGraphs:
    """Scene graphs of the images of a run, by id, the reasons for images without a usable one, and who reads them.

    `name` and `fingerprint` are those of the source, `config` are the settings that it was opened with.
    """

    graphs: Mapping[int, SceneGraph]
    bad: Mapping[int, str]
    kinds: Collection[GraphKind]
    name: str
    fingerprint: str
    config: GraphConfig


def prepare_graphs(
    dataset: Dataset,
    config: FeatureConfig,
    seen: Prepared,
    kinds: Collection[GraphKind],
    *,
    may_skip: bool,
    reporter: Reporter,
) -> ReadGraphs | None:
    """Read and check the graphs of all images with features; None where none are given, or no model reads any.

    Args:
        seen: the regions that the graphs are of, where these are known.
        kinds: that models read.

    Raises:
        BenchError: unusable graphs, unless `may_skip`; a source that cannot be read.
    """
    if config.graphs is None:
        return None
    if not kinds:
        check_source(config.graphs)
        reporter.note("no model here reads the scene graphs of --graphs")
        return None
    source = open_graphs(config.graphs, dataset)
    regions = seen.features if isinstance(seen.features, RegionFeatures) else None
    ids = [sample.image_id for sample in dataset.samples if sample.image_id not in seen.skipped]
    first = config.regions is not None and config.regions.as_listed
    counts = {} if regions is None else dict(zip(ids, regions.counts(ids), strict=True))
    graphs, bad = check_graphs(source, ids, counts.get, first=first)
    skip_or_refuse(bad, dataset, may_skip, reporter)
    return ReadGraphs(graphs, bad, kinds, source.name, source.fingerprint, config.graphs)


def number_graphs(read: ReadGraphs, train: Iterable[Sample], vocabulary: Vocabulary) -> ImageGraphs:
    """The graphs with what their numbers stand for, counted over the training images."""
    config = read.config
    training = [read.graphs[sample.image_id] for sample in train]
    counted = {"words": f"min{config.min_count}", "labels": f"labels{config.labels}"}
    return ImageGraphs(
        read.graphs,
        {kind: f"{read.name}[{counted[kind]}]#{read.fingerprint[:8]}" for kind in read.kinds},
        {kind: graph_entries(kind, training, vocabulary, config) for kind in read.kinds},
    )


def open_graphs(config: GraphConfig, dataset: Dataset) -> GraphSource:
    """The graphs of a source; BenchError as `read_graphs` and `scenes_graphs`."""
    if config.source == "scenes":
        return scenes_graphs(dataset, config.noise, config.seed)
    source = read_graphs(config.source)
    if source.graphs.keys().isdisjoint(sample.image_id for sample in dataset.samples):
        raise BenchError(
            f"--graphs {config.source}: no image of {dataset.name} has a graph there",
            'the ids must be those of the data set ("cocoid", or else "imgid")',
        )
    return source


def check_source(config: GraphConfig) -> None:
    """BenchError where the source is no file that graphs can be read from; what it holds is not looked at."""
    if isinstance(config.source, Path):
        check_file(config.source)


def check_graphs(
    source: GraphSource, image_ids: Iterable[int], regions_of: Callable[[int], int | None], *, first: bool = False
) -> tuple[dict[int, SceneGraph], dict[int, str]]:
    """The usable graphs of images, and the reasons for the others, both by image id.

    Args:
        regions_of: the number of an image's regions; None where it is unknown, and fits.
        first: only the first regions of images are kept, so that objects beyond them are left out, not refused.
    """
    graphs: dict[int, SceneGraph] = {}
    bad: dict[int, str] = {}
    for image_id in image_ids:
        graph, count = source.graphs.get(image_id), regions_of(image_id)
        if graph is None:
            reason = source.bad.get(image_id, "has no graph")
        elif count is None or len(graph.objects) <= count:
            graphs[image_id] = graph
            continue
        elif first:
            graphs[image_id] = _cut(graph, count)
            continue
        else:
            reason = f"has a graph of {len(graph.objects)} objects, but {count} regions"
        bad[image_id] = f"image {image_id}: {reason} ({source.name})"
    return graphs, bad


def _cut(graph: SceneGraph, count: int) -> SceneGraph:
    """The graph of the first objects alone."""
    return SceneGraph(
        graph.objects[:count],
        tuple(each for each in graph.attributes if each[0] < count),
        tuple(each for each in graph.relations if max(each[:2]) < count),
    )
