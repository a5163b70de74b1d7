"""What `bench data verify --graphs` says of scene graphs: the images that cannot be used, and counts of the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from harness.config.features import GraphConfig
from harness.data.dataset import Dataset
from harness.data.graphs.contract import SceneGraph
from harness.data.graphs.prepare import check_graphs, open_graphs
from harness.data.vocabulary import Vocabulary


def verify_graphs(
    config: GraphConfig, dataset: Dataset, image_ids: Iterable[int], regions_of: Callable[[int], int | None]
) -> tuple[dict[int, str], list[str]]:
    """The reasons for images without a usable graph, by id, and what to say of the graphs.

    Args:
        image_ids: of the images to check.
        regions_of: the number of an image's regions; None where it is unknown.
    """
    source = open_graphs(config, dataset)
    graphs, bad = check_graphs(source, image_ids, regions_of)
    known = {sample.image_id for sample in dataset.samples}
    others = sum(image_id not in known for image_id in (*source.graphs, *source.bad))
    objects, fewer = sum(len(graph.objects) for graph in graphs.values()), _fewer(graphs, regions_of)
    said = [
        f"{source.name}: {len(graphs)} images with a usable graph, {len(bad)} without, "
        f"{others} graphs of images that the data set lacks",
        f"{objects} objects, {sum(len(graph.attributes) for graph in graphs.values())} attributes, "
        f"{sum(len(graph.relations) for graph in graphs.values())} relations; "
        f"{sum(not graph.relations for graph in graphs.values())} images have no relation, "
        f"{fewer} name fewer objects than they have regions",
        *_of_words(config, dataset, graphs),
    ]
    return bad, said


def _fewer(graphs: Mapping[int, SceneGraph], regions_of: Callable[[int], int | None]) -> int:
    return sum(len(graph.objects) < (regions_of(image_id) or 0) for image_id, graph in graphs.items())


def _of_words(config: GraphConfig, dataset: Dataset, graphs: Mapping[int, SceneGraph]) -> list[str]:
    """What becomes of the words of attributes and relations, counted over the training images."""
    train = [sample for sample in dataset.samples if sample.split == "train" and sample.image_id in graphs]
    said = Vocabulary.build((caption for sample in train for caption in sample.captions), 1)
    predicates = Counter(word for sample in train for _, _, word in graphs[sample.image_id].relations)
    words = predicates + Counter(word for sample in train for _, word in graphs[sample.image_id].attributes)
    alone = {word: count for word, count in words.items() if said.number_of(word) is None}
    rare = [word for word, count in alone.items() if count < config.min_count]
    return [
        f"{len(words)} words of attributes and relations in training images: {len(words) - len(alone)} are words of "
        f"their captions, {len(alone) - len(rare)} others are read, {len(rare)} seen fewer than {config.min_count} "
        "times are left out",
        f"{len(predicates)} predicates, of which {min(len(predicates), config.labels)} have a label",
    ]
