"""Scene graphs of drawn scenes: they say what the captions say, and faults come at their rate."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.data.dataset import Dataset, open_dataset
from harness.data.graphs.graph import SceneGraph, check_places
from harness.data.graphs.scenes import PREDICATES, noisy, scene_graph, scenes_graphs
from harness.data.scenes.dataset import ScenesConfig, draw_scene, prepare_scenes
from harness.data.scenes.layout import Chance
from harness.utils.errors import BenchError

GRAPH = SceneGraph(("ring", "car", "tree"), ((0, "red"), (1, "small")), ((0, 1, "above"), (2, 0, "left of")))


def test_relations_are_where_the_boxes_are() -> None:
    config = ScenesConfig(nocaps_per_domain=0)
    seen = set()
    for number in range(100):
        drawn = draw_scene(config, "train", None, number)
        graph = check_places(scene_graph(drawn.scene))
        assert graph.objects == tuple(item.shape for item in drawn.scene.items)
        for place, item in enumerate(drawn.scene.items):
            assert [word for at, word in graph.attributes if at == place] == [
                item.colour,
                "large" if item.large else "small",
            ]
        for one, other, word in graph.relations:
            (x1, y1, x2, y2), (u1, v1, u2, v2) = drawn.boxes[one], drawn.boxes[other]
            seen.add(word)
            holds = {
                "left of": x1 + x2 < u1 + u2,
                "right of": x1 + x2 > u1 + u2,
                "above": y1 + y2 < v1 + v2,
                "below": y1 + y2 > v1 + v2,
                "inside": u1 < x1 and v1 < y1 and x2 < u2 and y2 < v2,
                "on": y2 <= v1 + 4,
            }
            assert holds[word], (number, word)
    assert seen == set(PREDICATES)


@given(st.integers(0, 10**6), st.floats(0, 1), st.floats(0, 1))
def test_faults_are_the_same_for_a_seed_and_among_those_of_a_higher_rate(seed: int, one: float, other: float) -> None:
    low, high = sorted((one, other))
    few, many = (noisy(GRAPH, rate, Chance(str(seed))) for rate in (low, high))
    assert few == noisy(GRAPH, low, Chance(str(seed)))
    for graph in (few, many):
        check_places(graph)
        assert all(one != other for one, other, _ in graph.relations)
    for exact, less, more in zip(GRAPH.objects, few.objects, many.objects, strict=True):
        assert less in {exact, more}
    assert noisy(GRAPH, 0.0, Chance(str(seed))) == GRAPH
    wholly = noisy(GRAPH, 1.0, Chance(str(seed)))
    assert not {*zip(GRAPH.objects, wholly.objects, strict=True)} & {(word, word) for word in GRAPH.objects}
    assert len(wholly.relations) == len(GRAPH.relations), "all are lost, and as many invented"


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = prepare_scenes(tmp_path_factory.mktemp("s"), ScenesConfig(train=3, val=1, test=1, nocaps_per_domain=1))
    return open_dataset(str(folder), cache_dir=folder)


def test_graphs_of_a_data_set_are_of_its_images_and_signed_by_their_settings(scenes: Dataset) -> None:
    exact = scenes_graphs(scenes)
    assert {sample.image_id: len(sample.boxes or ()) for sample in scenes.samples} == {
        image_id: len(graph.objects) for image_id, graph in exact.graphs.items()
    }
    told = [exact, *(scenes_graphs(scenes, noise, seed) for noise, seed in ((0.3, 0), (0.3, 1), (0.4, 0)))]
    assert [each.name for each in told] == ["scenes", "scenes:noise=0.3", "scenes:noise=0.3,seed=1", "scenes:noise=0.4"]
    assert len({each.fingerprint for each in told}) == 4


def test_other_data_have_no_graphs_of_scenes(scenes: Dataset, tmp_path: Path) -> None:
    stated = json.loads((scenes.root.parent / "dataset_scenes.json").read_text())
    for change in ({"version": 0}, {"config": {"seed": 0}}, {"config": stated["config"] | {"train": "many"}}):
        (tmp_path / "dataset_scenes.json").write_text(json.dumps(stated | change))
        with pytest.raises(BenchError, match=r"cannot be composed again"):
            scenes_graphs(Dataset("mine", tmp_path, scenes.samples, "f"))
    with pytest.raises(BenchError, match="mine cannot be composed again") as refused:
        scenes_graphs(Dataset("mine", tmp_path / "a" / "b", scenes.samples, "f"))
    assert "--data scenes" in (refused.value.hint or "")
