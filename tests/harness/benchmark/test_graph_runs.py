"""Models that read scene graphs: trained, captioning, and signed so, while other models' runs stay as they were."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.benchmark.context import RunContext
from harness.benchmark.models import graph_kinds, resolve_models
from harness.benchmark.plan import plan_runs
from harness.benchmark.saved_model import SavedModel
from harness.utils.errors import BenchError
from harness.utils.workspace import Workspace
from results import Store
from results.records import RunSpec
from results.runs.leaderboard import leaderboard
from results.runs.reading import attention_maps, failures
from tests.harness.benchmark.small_runs import make_context
from tests.harness.conftest import TINY, DrawScenes, bench, run_words
from zoo import create_model, list_models, model_card
from zoo.captioner import VisualSpec

READERS = ("sgae/graph", "gcn_lstm/semantic")
OTHERS = ("sgae", "gcn_lstm", "gcn_lstm/no-graph", "updown")
SEEN = ("--regions", "boxes", "--backbone", "filterbank")
BOXES = {"backbone": "filterbank", "options": {"grid": "2"}, "regions": {"source": "boxes"}}
KINDS = ("words", "labels")

pytestmark = pytest.mark.usefixtures("without_meteor")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("contexts")


def planned(folder: Path, graphs: dict[str, Any] | None, models: tuple[str, ...]) -> tuple[RunContext, list[RunSpec]]:
    context = make_context(folder, "regions", KINDS, **BOXES, **({} if graphs is None else {"graphs": graphs}))
    workspace = Workspace(folder / "workspace")
    return context, plan_runs(resolve_models(models, workspace), 1, context, workspace)


def test_cards_say_what_their_models_read() -> None:
    readers = {name: model_card(name).graph for name in list_models() if model_card(name).graph != "none"}
    assert readers == {"sgae/graph": "words", "gcn_lstm/semantic": "labels"}
    for name in (*READERS, *OTHERS):
        model = create_model(name, vocab_size=9, visual_dim=6, **model_card(name).tiny)
        assert model.visual.graph == model_card(name).graph
    assert graph_kinds(resolve_models(["gcn_lstm*", "sgae"], Workspace(Path("nowhere")))) == {"labels"}


def test_other_models_keep_key_signature_and_arguments(folder: Path) -> None:
    _, before = planned(folder, None, OTHERS)
    _, after = planned(folder, {"source": "scenes", "noise": 0.5, "min_count": 1}, OTHERS)
    for one, other in zip(before, after, strict=True):
        assert (one.key, one.signature, one.config) == (other.key, other.signature, other.config)
        assert "graph" not in other.signature
        assert "graphs" not in json.dumps(other.config)


def test_every_setting_of_graphs_is_in_key_and_signature_of_models_that_read_them(folder: Path) -> None:
    plain = {"source": "scenes", "noise": 0.5}
    changes: dict[str, Any] = {"noise": 0.25, "seed": 1, "min_count": 1, "labels": 2}
    read_by = {"min_count": ("sgae/graph",), "labels": ("gcn_lstm/semantic",)}
    _, first = planned(folder, plain, READERS)
    assert [spec.signature["graph"].partition("#")[0] for spec in first] == [
        "scenes:noise=0.5[min10]",
        "scenes:noise=0.5[labels20]",
    ]
    for name, value in changes.items():
        _, found = planned(folder, {**plain, name: value}, READERS)
        for one, other in zip(first, found, strict=True):
            moved = one.model in read_by.get(name, READERS)
            assert (one.key != other.key) == (one.signature["graph"] != other.signature["graph"]) == moved, name


def test_sizes_of_models_follow_from_the_graphs_of_training_images(folder: Path) -> None:
    context, specs = planned(folder, {"source": "scenes", "min_count": 1}, READERS)
    sizes = [spec.config["arguments"] for spec in specs]
    words, labels = (context.graph_entries(kind) for kind in KINDS)  # type: ignore[arg-type]
    assert (sizes[0]["n_graph_words"], sizes[1]["n_labels"]) == (len(words), 1 + len(labels))
    assert context.data.graphs is not None
    train = [context.data.graphs.graphs[sample.image_id] for sample in context.data.train]
    assert set(labels) == {word for graph in train for _, _, word in graph.relations}
    assert not set(words) & set(context.inputs.vocabulary.words)
    image = context.data.train[0].image_id
    spec = VisualSpec("regions", context.data.visual_dim, graph="words")
    seen = context.source(spec).visual([image], spec)
    assert seen.boxes is not None
    assert seen.attributes is not None
    assert seen.attributes[..., 0].max() < seen.boxes.shape[1]


def test_a_model_without_its_graph_says_what_to_type(folder: Path) -> None:
    context, _ = planned(folder, None, READERS)
    with pytest.raises(BenchError, match="needs a scene graph of each image, and none are given") as refused:
        context.source(VisualSpec("regions", 8, graph="labels"))
    assert "--graphs scenes" in (refused.value.hint or "")


@pytest.fixture(scope="module")
def data(draw_scenes: DrawScenes) -> Path:
    return draw_scenes(train=8, val=2, test=2)


@pytest.fixture(scope="module")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The workspace of a run of all that read graphs, and of one that does not."""
    workspace = tmp_path_factory.mktemp("trained") / "workspace"
    models = ",".join((*READERS, "sgae"))
    done = bench(*run_words(data, workspace, models, TINY), *SEEN, "--graphs", "scenes", "--graph-words", 1)
    assert done.exit_code == 0, done.output
    without = bench(*run_words(data, workspace, "sgae/graph,sgae", TINY), *SEEN)
    assert without.exit_code == 1, without.output
    assert "0 finished, 1 re-used, 1 failed" in without.output
    return workspace


def test_rows_that_read_other_graphs_are_not_ranked_together(trained: Path) -> None:
    with Store(trained / "bench.sqlite", read_only=True) as store:
        groups, [failed] = leaderboard(store), failures(store)
    assert {group.rows[0].model: "graph" in group.signature for group in groups} == {
        "sgae": False,
        "sgae/graph": True,
        "gcn_lstm/semantic": True,
    }
    assert failed.model == "sgae/graph"
    assert "needs a scene graph of each image" in failed.reason


def test_attention_is_shown_on_the_boxes_and_not_on_what_the_graph_adds(trained: Path, data: Path) -> None:
    known = {image["imgid"]: image for image in json.loads((data / "dataset_scenes.json").read_text())["images"]}
    with Store(trained / "bench.sqlite", read_only=True) as store:
        keys = [row.keys[0] for group in leaderboard(store) for row in group.rows if row.model in READERS]
        maps = [record for key in keys for record in attention_maps(store, key, "test").values()]
    assert maps
    for record in maps:
        np.testing.assert_allclose(record.boxes or (), np.array(known[record.image_id]["boxes"]) / 96, atol=1e-6)


def test_a_run_keeps_its_numbers_and_captions_with_them(trained: Path, data: Path, tmp_path: Path) -> None:
    folders = sorted(trained.glob("runs/sgae.graph-s0-*"))
    [folder] = [each for each in folders if (each / "best.safetensors").is_file()]
    saved = SavedModel.load(folder)
    assert saved.graph_entries
    assert saved.arguments["n_graph_words"] == len(saved.graph_entries)
    assert saved.features.graphs is not None
    other = SavedModel.load(next(trained.glob("runs/sgae-s0-*")))
    assert (other.graph_entries, other.features.graphs) == (None, None)
    captioned = bench("caption", "--data", data, "--split", "val", "--run", folder)
    assert captioned.exit_code == 0, captioned.output
    entries = json.loads((data / "dataset_scenes.json").read_text())["images"]
    graphs = [
        {"image_id": each["imgid"], "objects": len(each["boxes"])} for each in entries if each["split"] != "train"
    ]
    path = tmp_path / "graphs.json"
    path.write_text(json.dumps({"format": "captionbench graphs 1", "graphs": graphs[:1] + graphs[2:]}))
    cut = bench("caption", "--data", data, "--split", "val", "--run", folder, "--graphs", path)
    assert cut.exit_code == 1, cut.output
    assert len(cut.stdout.splitlines()) == 1
    assert "has no graph (graphs.json)" in cut.stderr
    refused = bench("caption", "--data", data, "--split", "val", "--run", trained / "runs" / folder.name, *SEEN[:2])
    assert refused.exit_code == 0, refused.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--graphs", "scenes"), "--graphs scenes needs --regions"),
        ((*SEEN, "--graphs", "scenes:noise=2"), "cannot be understood"),
        ((*SEEN, "--graphs", "scenes:noise=nan"), "cannot be understood"),
        ((*SEEN, "--graphs", "scenes:colour=3"), "cannot be understood"),
        ((*SEEN, "--graphs", "scenes:"), "cannot be understood"),
        ((*SEEN, "--graphs", "graphs.npy"), "are pickles"),
        ((*SEEN, "--graphs", "scenes", "--region-count", "fixed:2"), "no longer be the regions in order"),
        ((*SEEN, "--graph-words", 3), "need --graphs"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(
    data: Path, tmp_path: Path, options: tuple[object, ...], message: str
) -> None:
    done = bench(*run_words(data, tmp_path / "workspace", "sgae/graph", TINY), *options)
    assert done.exit_code != 0
    assert message in str(done.exception)


def test_verify_counts_what_a_file_lacks(data: Path, tmp_path: Path) -> None:
    place = ("--workspace", tmp_path / "workspace")
    sound = bench("data", "verify", data, "--regions", "boxes", "--graphs", "scenes", *place)
    assert sound.exit_code == 0, sound.output
    entries = json.loads((data / "dataset_scenes.json").read_text())["images"]
    graphs = [{"image_id": each["imgid"], "objects": len(each["boxes"])} for each in entries]
    graphs[0] |= {"attributes": [[0, "unheard"]], "relations": [[0, 0, "on"]]}
    graphs[1]["objects"] += 1
    graphs[2]["relations"] = [[0, 9, "on"]]
    graphs[3]["image_id"] = 999
    (tmp_path / "g.json").write_text(json.dumps({"format": "captionbench graphs 1", "graphs": graphs}))
    found = bench("data", "verify", data, "--regions", "boxes", "--graphs", tmp_path / "g.json", *place)
    assert found.exit_code == 1, found.output
    total = len(entries)
    assert (
        f"{total - 3} images with a usable graph, 3 without, 1 graphs of images that the data set lacks" in found.output
    )
    for told in ("objects, but", "of objects 0 and 9", "has no graph", "2 words of attributes", "1 seen fewer than 10"):
        assert told in found.output, told
