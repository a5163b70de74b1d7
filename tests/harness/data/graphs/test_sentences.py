"""Sentence graphs of a file, and in numbers of a vocabulary."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.data.batches import Batch, CaptionBatches, GraphTensors
from harness.data.dataset import Sample
from harness.data.features import NullSource
from harness.data.graphs import (
    SENTENCES_FORMAT,
    NumberedGraph,
    SceneGraph,
    SentenceGraphs,
    number_graph,
    read_sentence_graphs,
)
from harness.data.vocabulary import Vocabulary
from harness.utils.errors import BenchError
from zoo import VisualSpec

VOCABULARY = Vocabulary(("man", "young", "horse", "ride", "next", "next to", "left"))
MAN = {"objects": [["Man", "young"], ["horse"]], "relations": [[0, 1, "ride"]]}


def written(folder: Path, images: Any, file_format: str = SENTENCES_FORMAT) -> Path:
    path = folder / "graphs.json"
    path.write_text(json.dumps({"format": file_format, "images": images}))
    return path


def sample(captions: int) -> Sample:
    return Sample(7, "7.png", "train", tuple(f"man {number}" for number in range(captions)))


def test_a_graph_may_be_of_all_captions_or_of_each(tmp_path: Path) -> None:
    expected = SceneGraph(("man", "horse"), ((0, "young"),), ((0, 1, "ride"),))
    one = read_sentence_graphs(written(tmp_path, {"7": [MAN]}))
    assert one.of(sample(3)) == (expected,) * 3
    each = read_sentence_graphs(written(tmp_path, {"7": [MAN, {"objects": []}]}))
    assert each.of(sample(2)) == (expected, SceneGraph(()))
    assert one.described.startswith("file#")
    assert one.described != each.described
    with pytest.raises(BenchError, match="2 graphs for image 7"):
        each.of(sample(3))
    with pytest.raises(BenchError, match="no graph for image 7"):
        SentenceGraphs({}, "").of(sample(1))


def test_the_example_of_the_documentation_is_such_a_file(tmp_path: Path) -> None:
    page = (Path(__file__).parents[4] / "docs" / "graph_models.md").read_text(encoding="utf-8")
    path = tmp_path / "graphs.json"
    path.write_text(page.partition("```json\n")[2].partition("```")[0])
    graphs = read_sentence_graphs(path).by_image[391895]
    assert graphs == (SceneGraph(("man", "motorcycle"), ((0, "young"),), ((0, 1, "ride"),)),)


@pytest.mark.parametrize(
    "images",
    [
        [],
        {"seven": [MAN]},
        {"7": [MAN], "07": [MAN]},
        {"7": []},
        {"7": MAN},
        {"7": [[]]},
        {"7": [{"objects": ["man"]}]},
        {"7": [{"objects": [[]]}]},
        {"7": [{"objects": [["man", 3]]}]},
        {"7": [{"objects": [["man"]], "relations": 3}]},
        {"7": [{"objects": [["man"]], "relations": [[0, 1, "ride"]]}]},
        {"7": [{"objects": [["man"]], "relations": [[0, -1, "ride"]]}]},
        {"7": [{"objects": [["man"]], "relations": [[False, 0, "ride"]]}]},
        {"7": [{"objects": [["man"]], "relations": [[0, 0, " "]]}]},
    ],
)
def test_what_is_no_graph_is_refused_by_image(tmp_path: Path, images: Any) -> None:
    named = f"graphs.json, image {list(images)[-1]}" if images else "graphs.json"
    with pytest.raises(BenchError, match=named) as caught:
        read_sentence_graphs(written(tmp_path, images))
    assert "docs/graph_models.md" in (caught.value.hint or "")


def test_another_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="is no file of sentence graphs"):
        read_sentence_graphs(written(tmp_path, {}, "other"))


def test_unknown_words_take_what_hangs_on_them_along() -> None:
    graph = SceneGraph(
        ("dog", "man", "horse"),
        ((0, "young"), (1, "young"), (1, "old")),
        ((0, 1, "ride"), (1, 2, "eat"), (1, 2, "ride"), (2, 1, "next to"), (1, 2, "left of")),
    )
    man, young, horse, ride, _, beside, left = range(4, 11)
    relations = ((0, 1, ride), (1, 0, beside), (0, 1, left))
    assert number_graph(graph, VOCABULARY) == NumberedGraph((man, horse), ((young,), ()), relations)


def test_tensors_are_padded_to_the_largest_graph() -> None:
    small, large = NumberedGraph((4,), ((),), ()), NumberedGraph((4, 5), ((6,), (7, 8)), ((1, 0, 9),))
    found = GraphTensors.of([small, large, NumberedGraph((), (), ())])
    assert found.objects.tolist() == [[4, -1], [4, 5], [-1, -1]]
    assert found.attributes[1].tolist() == [[6, -1], [7, 8]]
    assert found.relations.tolist() == [[[-1, -1, -1]], [[1, 0, 9]], [[-1, -1, -1]]]
    assert GraphTensors.of([small]).relations.shape == (1, 1, 3)


def test_each_caption_comes_with_its_own_graph() -> None:
    """Also in micro-batches."""
    words = ("man", "young", "horse")
    samples = [Sample(image, f"{image}.png", "train", words) for image in range(4)]
    numbers = [VOCABULARY.encode(word, 9)[0] for word in words]
    graphs = [[NumberedGraph((number, image), ((), ()), ()) for number in numbers] for image in range(4)]
    batches = CaptionBatches(
        samples, VOCABULARY, NullSource(), VisualSpec("none", 0), batch_size=3, captions_per_image=2, seed=1, max_len=9,
        graphs=graphs,
    )  # fmt: skip
    seen: list[Batch] = [part for batch in batches.epoch(0) for part in batch.split(2)]
    assert len(seen) == 3
    for part in seen:
        assert torch.equal(part.sentences.objects[:, 0], part.tokens[:, 1])
        assert part.sentences.objects[:, 1].tolist() == [image for image in part.image_ids for _ in range(2)]
