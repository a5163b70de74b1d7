"""The scene graphs of a run's images: read, check against regions, convert to numbers, and add to visual input."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.config.features import FeatureConfig, GraphConfig
from harness.data.batches import VisualSource, padded
from harness.data.dataset import Dataset, Sample
from harness.data.features import rows_of
from harness.data.graphs import GraphSource, SceneGraph, check_file, read_graphs, scenes_graphs
from harness.data.prepare_features import Prepared, skip_or_refuse
from harness.data.regions.features import RegionFeatures
from harness.data.vocabulary import Vocabulary
from harness.utils.errors import BenchError
from harness.utils.progress import Reporter
from zoo.captioner import Visual, VisualSpec
from zoo.kinds import GraphKind


@dataclass(frozen=True, slots=True)
class ImageGraphs:
    """The scene graphs of all images of a run, by image id, with no more objects than the image has regions.

    `described` is the source with the settings of each kind of graph, as signatures show it. `entries` are by kind what
    has a number besides the words of the vocabulary: words of graphs, or labels of edges.
    """

    graphs: Mapping[int, SceneGraph]
    described: Mapping[GraphKind, str]
    entries: Mapping[GraphKind, tuple[str, ...]]


def graph_entries(
    kind: GraphKind, graphs: Iterable[SceneGraph], vocabulary: Vocabulary, config: GraphConfig
) -> tuple[str, ...]:
    """The entries of the training images' graphs that get numbers, most frequent first, ties in code-point order.

    "words": words of attributes and relations that the vocabulary lacks, seen `config.min_count` times or more.
    "labels": the predicates of relations, the `config.labels` most frequent.
    """
    graphs = list(graphs)
    counts = Counter(word for graph in graphs for _, _, word in graph.relations)
    if kind == "words":
        counts.update(word for graph in graphs for _, word in graph.attributes)
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    if kind == "labels":
        return tuple(ranked[: config.labels])
    return tuple(word for word in ranked if counts[word] >= config.min_count and vocabulary.number_of(word) is None)


def numbers(kind: GraphKind, words: Iterable[str], entries: Sequence[str], vocabulary: Vocabulary) -> dict[str, int]:
    """The number of each word that has one.

    "words": that of the vocabulary, or of `entries` behind it. "labels": from 1 on, since 0 stands for no edge.
    """
    if kind == "labels":
        return {word: number for number, word in enumerate(entries, 1)}
    entry_numbers = {word: len(vocabulary) + index for index, word in enumerate(entries)}
    word_numbers = {word: vocabulary.number_of(word) for word in set(words)}
    return entry_numbers | {word: number for word, number in word_numbers.items() if number is not None}


class WithGraph:
    """Visual input of another source, with the scene graphs of its images for one kind of graph.

    Relations and attributes whose words have no number are left out; of several labels of one ordered pair of regions
    the first is kept. Safe to share between threads.
    """

    def __init__(
        self,
        source: VisualSource,
        kind: GraphKind,
        graphs: Mapping[int, SceneGraph],
        entries: Sequence[str],
        vocabulary: Vocabulary,
    ) -> None:
        self.source = source
        self._kind = kind
        self._graphs = graphs
        words = (word for graph in graphs.values() for word in _words(graph))
        self._numbers = numbers(kind, words, entries, vocabulary)
        # One width for all batches, so that one image is the same in each of them.
        self._width = max(map(len, (row for graph in graphs.values() for row in self._attributes(graph))), default=2)

    def visual(self, image_ids: Sequence[int], spec: VisualSpec) -> Visual:
        """Visual input of the images for this `VisualSpec`; BenchError where an image has no graph."""
        graphs = rows_of(self._graphs, image_ids, "graph")
        visual = self.source.visual(image_ids, replace(spec, graph="none"))
        relations = padded([self._relations(graph) for graph in graphs], 3)
        if self._kind == "labels":
            return replace(visual, relations=relations)
        return replace(visual, relations=relations, attributes=padded(list(map(self._attributes, graphs)), self._width))

    def _relations(self, graph: SceneGraph) -> list[tuple[int, ...]]:
        numbered = [(subject, obj, self._numbers.get(word)) for subject, obj, word in graph.relations]
        relations = [(subject, obj, number) for subject, obj, number in numbered if number is not None]
        if self._kind == "labels":
            first = {(subject, obj): number for subject, obj, number in reversed(relations)}
            relations = [(subject, obj, number) for (subject, obj), number in sorted(first.items())]
        return list(relations)

    def _attributes(self, graph: SceneGraph) -> list[tuple[int, ...]]:
        """A row for each object that has a known word."""
        rows: dict[int, list[int]] = {}
        for object_index, word in graph.attributes:
            if word in self._numbers:
                rows.setdefault(object_index, []).append(self._numbers[word])
        return [(object_index, *word_numbers) for object_index, word_numbers in sorted(rows.items())]


def _words(graph: SceneGraph) -> Iterable[str]:
    yield from (word for _, word in graph.attributes)
    yield from (word for _, _, word in graph.relations)


def prepare_graphs(
    dataset: Dataset,
    config: FeatureConfig,
    seen: Prepared,
    kinds: Collection[GraphKind],
    *,
    may_skip: bool,
    reporter: Reporter,
) -> GraphSource | None:
    """Checked graphs of images with features, or None if no model uses graphs; raise BenchError unless may_skip."""
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
    return replace(source, graphs=graphs, bad=bad)


def number_graphs(
    read: GraphSource,
    config: GraphConfig,
    kinds: Collection[GraphKind],
    train: Iterable[Sample],
    vocabulary: Vocabulary,
) -> ImageGraphs:
    """The graphs, with the entries that their numbers stand for, by kind, counted over the training images."""
    training = [read.graphs[sample.image_id] for sample in train]
    counted = {"words": f"min{config.min_count}", "labels": f"labels{config.labels}"}
    return ImageGraphs(
        read.graphs,
        {kind: f"{read.name}[{counted[kind]}]#{read.fingerprint[:8]}" for kind in kinds},
        {kind: graph_entries(kind, training, vocabulary, config) for kind in kinds},
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
    """BenchError where the source cannot be a file of graphs; its content is not read."""
    if isinstance(config.source, Path):
        check_file(config.source)


def check_graphs(
    source: GraphSource, image_ids: Iterable[int], regions_of: Callable[[int], int | None], *, first: bool = False
) -> tuple[dict[int, SceneGraph], dict[int, str]]:
    """The usable graphs of images, and the reasons for the others, both by image id.

    Objects beyond an image's number of regions, if known, are refused, or left out where its `first` ones are kept.
    """
    graphs: dict[int, SceneGraph] = {}
    reasons: dict[int, str] = {}
    for image_id in image_ids:
        graph = source.graphs.get(image_id)
        count = regions_of(image_id)
        if graph is None:
            reasons[image_id] = source.bad.get(image_id, "has no graph")
        elif count is None or len(graph.objects) <= count:
            graphs[image_id] = graph
        elif first:
            graphs[image_id] = _cut(graph, count)
        else:
            reasons[image_id] = f"has a graph of {len(graph.objects)} objects, but {count} regions"
    return graphs, {image_id: f"image {image_id}: {reason} ({source.name})" for image_id, reason in reasons.items()}


def _cut(graph: SceneGraph, count: int) -> SceneGraph:
    """The graph of the first objects only."""
    return SceneGraph(
        graph.objects[:count],
        tuple(row for row in graph.attributes if row[0] < count),
        tuple(row for row in graph.relations if max(row[:2]) < count),
    )


def verify_graphs(
    config: GraphConfig, dataset: Dataset, image_ids: Iterable[int], regions_of: Callable[[int], int | None]
) -> tuple[dict[int, str], list[str]]:
    """The reasons for images without a usable graph, by id, and notes about the graphs."""
    source = open_graphs(config, dataset)
    graphs, bad = check_graphs(source, image_ids, regions_of)
    train = [sample for sample in dataset.samples if sample.split == "train" and sample.image_id in graphs]
    vocabulary = Vocabulary.build((caption for sample in train for caption in sample.captions), 1)
    training = [graphs[sample.image_id] for sample in train]
    words, labels = (len(graph_entries(kind, training, vocabulary, config)) for kind in ("words", "labels"))
    caption_words = len(
        {word for graph in training for word in _words(graph) if vocabulary.number_of(word) is not None}
    )
    parts = ("objects", "attributes", "relations")
    counted = [f"{sum(len(getattr(graph, part)) for graph in graphs.values())} {part}" for part in parts]
    return bad, [
        f"{source.name}: {len(graphs)} images with a usable graph, {len(bad)} without; {', '.join(counted)}",
        f"of training images, {caption_words} words are those of captions, {words} others are read, and {labels} "
        "predicates have a label",
    ]
