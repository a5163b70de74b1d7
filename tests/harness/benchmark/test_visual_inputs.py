"""What models see of `--regions` and `--graphs`: trained, signed and captioning so, and what does not fit is named."""

import json
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from huggingface_hub import constants
from PIL import Image

from harness.benchmark.context import RunContext
from harness.benchmark.rows import graph_kinds, resolve_models
from harness.benchmark.saved_model import SavedModel
from harness.config.features import FeatureConfig
from harness.config.run import TrainedRun, config_of
from harness.data import prepare_features as run_features
from harness.data.backbones.opening import open_backbone
from harness.data.hub import quick_hub
from harness.utils.errors import BenchError
from harness.utils.workspace import Workspace
from results import Store
from results.records import RunSpec
from results.runs.leaderboard import leaderboard
from results.runs.reading import attention_maps, datasets, failures, one_run
from tests.harness.benchmark.small_runs import make_context, planner, requested
from tests.harness.conftest import TINY, bench, bench_ok, failures_in, groups_in, run_counts, run_words
from zoo import create_model, list_models, model_card
from zoo.captioner import VisualSpec

CHANNELS = 6
READERS = ("sgae/graph", "gcn_lstm/semantic")
PLAIN = ("transformer_base", "show_tell", "blind", "sgae")
SEEN = ("--regions", "boxes", "--set", "features.regions.bins=2", "--backbone", "filterbank")
GRAPHS = ("--graphs", "scenes", "--set", "features.graphs.min_count=1")
BOXES = {"backbone": "filterbank", "options": {"grid": "2"}, "regions": {"source": "boxes"}}
KINDS = ("words", "labels")


@pytest.fixture(scope="module")
def images(data: Path) -> list[dict[str, Any]]:
    """The entries of the data set's images, by their numbers."""
    entries: list[dict[str, Any]] = json.loads((data / "dataset_scenes.json").read_text())["images"]
    return entries


def words(data: Path, workspace: Path, models: str, *extra: object) -> list[object]:
    return [*run_words(data, workspace, models, TINY), *extra]


@pytest.fixture(scope="module")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The workspace of a run on the data set's own boxes, four bins each, of models that see each kind of thing."""
    workspace = tmp_path_factory.mktemp("trained") / "workspace"
    bench_ok(*words(data, workspace, ",".join((*PLAIN, "retrieval", "dlct", *READERS)), *SEEN, *GRAPHS))
    return workspace


def run_of(workspace: Path, model: str) -> Path:
    [folder] = workspace.glob(f"runs/{model.replace('/', '.')}-s0-*/best.safetensors")
    return folder.parent


def test_models_are_ranked_among_those_that_see_the_same(trained: Path) -> None:
    groups = {row.model: group for group in groups_in(trained) for row in group.rows}
    for group in groups.values():
        assert all(row.scores["CIDEr-D"].mean is not None for row in group.rows)
    feat = groups["blind"].signature["feat"]
    assert feat.startswith("regions[boxes,all,roi2,filterbank-v1[grid=8]@96]#")
    assert feat.endswith(",1-3")
    assert {row.model for row in groups["blind"].rows} == set(PLAIN)
    assert [row.model for row in groups["dlct"].rows] == ["dlct"]
    assert groups["dlct"].signature["feat"] == f"{feat}+grid"
    assert {model for model, group in groups.items() if "graph" in group.signature} == set(READERS)
    both, one = (SavedModel.load(run_of(trained, model)) for model in ("dlct", "transformer_base"))
    assert both.visual_dim == one.visual_dim == 4 * both.arguments["grid_dim"]
    assert "grid_dim" not in one.arguments
    assert one.features.regions is not None
    assert one.features.regions.source == "boxes"


def test_words_look_at_the_regions_boxes(trained: Path, images: list[dict[str, Any]]) -> None:
    """And not at what a graph or a grid adds."""
    with Store(trained / "bench.sqlite", read_only=True) as store:
        keys = {row.model: row.keys[0] for group in leaderboard(store) for row in group.rows}
        maps = {model: attention_maps(store, key, "test") for model, key in keys.items()}
    assert not maps["blind"]
    assert not maps["show_tell"]
    records = [record for found in maps.values() for record in found.values()]
    assert records, "these models say a word of some image"
    known = {image["imgid"]: image["boxes"] for image in images}
    for record in records:
        np.testing.assert_allclose(record.boxes or (), np.array(known[record.image_id]) / 96, atol=1e-6)
        np.testing.assert_allclose(np.sum(record.weights, 1), 1.0, atol=0.01)


def test_graphs_are_of_no_matter_to_models_that_read_none(trained: Path, data: Path) -> None:
    """Their runs are used again without them; a reader is one row that failed."""
    without = bench(*words(data, trained, "sgae/graph,sgae,dlct,transformer_base", *SEEN))
    assert without.exit_code == 1, without.output
    assert run_counts(without.output).items() >= {"finished": 0, "re-used": 3, "failed": 1}.items()
    [failed] = failures_in(trained)
    assert failed.model == "sgae/graph"
    assert "scene graph" in failed.reason


def test_a_run_on_regions_captions_what_has_regions(
    trained: Path, data: Path, images: list[dict[str, Any]], tmp_path: Path
) -> None:
    folder = run_of(trained, "transformer_base")
    split = bench_ok("caption-data", data, "--split", "val", "--run", folder)
    assert len(split.stdout.splitlines()) == 4
    pictures = [data / "images" / f"{number:06d}.png" for number in (24, 25)]
    bare = bench("caption", *pictures, "--run", folder)
    assert isinstance(bare.exception, BenchError)
    assert "regions" in str(bare.exception)
    boxes = [
        {"image_id": number, "bbox": [x1, y1, x2 - x1, y2 - y1], "score": 0.9}
        for number in (24, 25)
        for x1, y1, x2, y2 in images[number]["boxes"]
    ]
    (tmp_path / "boxes.json").write_text(json.dumps(boxes))
    own = bench_ok("caption", *pictures, "--run", folder, "--regions", tmp_path / "boxes.json")
    assert [line.split(": ")[1] for line in own.stdout.splitlines()] == [
        line.split(": ")[1] for line in split.stdout.splitlines()[:2]
    ]
    boxes[0]["bbox"] = [0, 0, 500, 10]
    (tmp_path / "boxes.json").write_text(json.dumps(boxes))
    torn = bench("caption", *pictures, "--run", folder, "--regions", tmp_path / "boxes.json")
    assert torn.exit_code == 1
    assert "000024.png" in torn.stderr
    assert len(torn.stdout.splitlines()) == 1
    Image.new("RGB", (9, 9)).save(tmp_path / "dog.png")
    nameless = bench("caption", tmp_path / "dog.png", "--run", folder, "--regions", tmp_path / "boxes.json")
    assert isinstance(nameless.exception, BenchError)
    assert "dog.png" in str(nameless.exception)


def test_a_run_on_windows_captions_any_picture(data: Path, tmp_path: Path) -> None:
    bench_ok(*words(data, tmp_path / "ws", "transformer_base", "--regions", "windows:2", "--backbone", "filterbank"))
    folder = run_of(tmp_path / "ws", "transformer_base")
    split = bench("caption-data", data, "--split", "val", "--run", folder)
    [line] = bench_ok("caption", data / "images" / "000024.png", "--run", folder).stdout.splitlines()
    assert line.split(": ")[1] == split.stdout.splitlines()[0].split(": ")[1]


@pytest.mark.parametrize("model", ["dlct", "sgae/graph"])
def test_a_run_captions_with_what_else_it_sees(
    model: str, trained: Path, data: Path, images: list[dict[str, Any]], tmp_path: Path
) -> None:
    folder = run_of(trained, model)
    assert len(bench_ok("caption-data", data, "--split", "val", "--run", folder).stdout.splitlines()) == 4
    saved = SavedModel.load(folder)
    assert saved.features.graphs is None if model == "dlct" else saved.features.graphs
    assert len(saved.graph_entries or ()) == saved.arguments.get("n_graph_words", 0)
    if model == "dlct":
        return
    graphs = [{"image_id": each["imgid"], "objects": len(each["boxes"])} for each in images if each["split"] == "val"]
    path = tmp_path / "graphs.json"
    path.write_text(json.dumps({"format": "captionbench graphs 1", "graphs": graphs[1:]}))
    cut = bench("caption-data", data, "--split", "val", "--run", folder, "--graphs", path)
    assert cut.exit_code == 1, cut.output
    assert len(cut.stdout.splitlines()) == 3
    assert "graphs.json" in cut.stderr


def region_folder(data: Path, root: Path, *, boxes: bool = True) -> Path:
    """Bottom-up features of every image of the data set, with its true boxes or more."""
    att, box = root / "bu_att", root / "bu_box"
    for place in (att, box) if boxes else (att,):
        place.mkdir(parents=True)
    random = np.random.default_rng(0)
    for image in json.loads((data / "dataset_scenes.json").read_text())["images"]:
        known = np.array(image["boxes"], np.float32)
        np.savez(att / f"{image['imgid']}.npz", feat=random.normal(size=(len(known), CHANNELS)).astype(np.float32))
        if boxes:
            np.save(box / f"{image['imgid']}.npy", known)
    return att


def test_files_of_features_need_neither_backbone_nor_pictures(data: Path, tmp_path: Path) -> None:
    att = region_folder(data, tmp_path)
    annotations = json.loads((data / "dataset_scenes.json").read_text())
    for image in annotations["images"]:
        image |= {"width": 96, "height": 96}
    (tmp_path / "dataset_scenes.json").write_text(json.dumps(annotations))
    bench_ok(*words(tmp_path / "dataset_scenes.json", tmp_path / "ws", "updown", "--regions", att))
    [group] = groups_in(tmp_path / "ws")
    assert group.signature["feat"].startswith("regions[bu_att,all]#")


def test_models_that_need_more_than_there_is_fail_alone(data: Path, tmp_path: Path) -> None:
    att = region_folder(data, tmp_path, boxes=False)
    for shown, models in (
        (("--backbone", "filterbank"), {"dlct"}),
        (("--regions", att), {"dlct", "image_transformer"}),
    ):
        workspace = tmp_path / str(len(models))
        assert bench(*words(data, workspace, ",".join(("updown", *models)), *shown)).exit_code == 1
        with Store(workspace / "bench.sqlite", read_only=True) as store:
            [row] = leaderboard(store)[0].rows
            assert row.model == "updown"
            assert bool(attention_maps(store, row.keys[0], "test")) == (shown[0] == "--backbone")
            failed = failures(store)
        assert {failure.model for failure in failed} == models
        assert all("boxes" in (failure.reason or "") for failure in failed)


def mixed_folder(data: Path, root: Path) -> Path:
    """Everything that goes wrong, one image each, among images with 1 and with 100 regions."""
    att = region_folder(data, root)
    box, ones = root / "bu_box", np.ones((2, CHANNELS), np.float32)
    np.savez(att / "0.npz", feat=ones[:1])
    np.save(box / "0.npy", np.array([[0, 0, 9, 9]], np.float32))
    np.savez(att / "1.npz", feat=np.ones((100, CHANNELS), np.float32))
    np.save(box / "1.npy", np.tile(np.array([[0, 0, 9, 9]], np.float32), (100, 1)))
    (box / "2.npy").unlink()
    np.savez(att / "3.npz", feat=np.ones((2, CHANNELS + 1), np.float32))
    np.save(box / "3.npy", np.array([[0, 0, 9, 9]] * 2, np.float32))
    np.savez(att / "4.npz", feat=ones * np.array([[1], [np.nan]], np.float32))
    np.save(box / "4.npy", np.array([[0, 0, 9, 9]] * 2, np.float32))
    (att / "5.npz").unlink()
    np.savez(att / "30.npz", feat=ones)
    np.save(box / "30.npy", np.array([[9, 9, 0, 0], [0, 0, 9, 9]], np.float32))
    return att


COMPLAINTS = (
    "image 2: has features but no box file",
    "image 3: has 7 channels instead of 6",
    "image 4: has NaN or infinite values in 1 of 2 regions",
    "image 5: has no regions in bu_att",
    "image 30: box 0 (9, 9, 0, 0) is inverted",
)


def test_a_mixed_folder_names_each_image_or_skips_it(data: Path, tmp_path: Path) -> None:
    att = mixed_folder(data, tmp_path)
    refused = bench(*words(data, tmp_path / "ws", "transformer_base", "--regions", att))
    assert isinstance(refused.exception, BenchError)
    assert "5 of 34 images cannot be used" in str(refused.exception)
    for complaint in COMPLAINTS:
        assert complaint in str(refused.exception)
    assert "--skip-bad-images" in (refused.exception.hint or "")
    skipped = bench_ok(*words(data, tmp_path / "ws", "transformer_base", "--regions", att, "--skip-bad-images"))
    assert "5 bad images skipped, 1 of them" in skipped.output
    with Store(tmp_path / "ws" / "bench.sqlite", read_only=True) as store:
        [group] = leaderboard(store)
        signature = one_run(store, group.rows[0].keys[0]).signature
        assert signature["data"].endswith(",skipped:5")
        assert signature["feat"].endswith(",1-100")
        assert set(datasets(store)[0].skipped) == {f"image {number}" for number in (2, 3, 4, 5, 30)}


def test_verify_and_features_tell_of_regions(data: Path, tmp_path: Path) -> None:
    att = mixed_folder(data, tmp_path)
    checked = bench("data", "verify", data, "--regions", att, "--workspace", tmp_path / "ws")
    assert checked.exit_code == 1
    assert "5 of 34 images" in checked.output
    assert f"image 2 (train): {COMPLAINTS[0].removeprefix('image 2: ')}" in checked.output
    assert not (tmp_path / "ws" / "cache" / "regions").exists()
    words = ("data", "features", data, "--regions", att, "--workspace", tmp_path / "ws", "--device", "cpu")
    assert isinstance(bench(*words).exception, BenchError)
    made = bench_ok(*words, "--skip-bad-images", "--region-count", "fixed:36")
    assert "regions[bu_att,fixed:36]#" in made.output
    assert ",1-36: 29 images ready" in made.output


def test_it_sees_regions_and_grids_of_one_file(data: Path, tmp_path: Path) -> None:
    """Of other numbers of channels, and without a backbone."""
    random, images = np.random.default_rng(0), json.loads((data / "dataset_scenes.json").read_text())["images"]
    file = tmp_path / "both.hdf5"
    with h5py.File(file, "w") as opened:
        for image in images:
            boxes = np.array(image["boxes"], np.float32)
            opened[f"{image['imgid']}_features"] = random.normal(size=(len(boxes), 6)).astype(np.float32)
            opened[f"{image['imgid']}_boxes"] = boxes * 2
            opened[f"{image['imgid']}_size"] = np.array((192, 192))
            opened[f"{image['imgid']}_grids"] = random.normal(size=(9, 5)).astype(np.float32)
    workspace = tmp_path / "workspace"
    bench_ok(*run_words(data, workspace, "dlct", TINY), "--regions", file)
    [group] = groups_in(workspace)
    assert re.fullmatch(r"regions\[both\.hdf5,all\]#[0-9a-f]{8},[0-9-]+\+grid#[0-9a-f]{8}", group.signature["feat"])
    folder = workspace / "runs" / group.rows[0].keys[0]
    assert SavedModel.load(folder).arguments["grid_dim"] == 5
    bench_ok("caption-data", data, "--split", "val", "--run", folder)

    with h5py.File(file, "a") as opened:
        del opened[f"{images[0]['imgid']}_grids"]
    refused = bench(*run_words(data, tmp_path / "other", "dlct", TINY), "--regions", file)
    assert f"1 of {len(images)} images cannot be used" in str(refused.exception)
    assert f"image {images[0]['imgid']}: has no regions in both.hdf5:grids" in str(refused.exception)


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[RunContext, list[RunSpec]]]:
    """Plans the runs of models that read graphs, with settings of the graphs of `scenes`."""
    folder = tmp_path_factory.mktemp("contexts")

    def plan(**graphs: Any) -> tuple[RunContext, list[RunSpec]]:
        context = make_context(folder, "regions", KINDS, **BOXES, graphs={"source": "scenes", **graphs})
        workspace = Workspace(folder / "workspace")
        return context, planner(context, workspace).plan(resolve_models(READERS, workspace), 1)

    return plan


def test_cards_say_what_their_models_read() -> None:
    readers = {name: model_card(name).graph for name in list_models() if model_card(name).graph != "none"}
    assert readers == dict(zip(READERS, KINDS, strict=True))
    for name in (*READERS, "sgae", "gcn_lstm/no-graph"):
        model = create_model(name, vocab_size=9, visual_dim=6, **model_card(name).tiny)
        assert model.visual.graph == model_card(name).graph
    assert graph_kinds(requested("gcn_lstm*", "sgae")) == {"labels"}


def test_every_setting_of_graphs_is_in_key_and_signature_of_models_that_read_them(
    planned: Callable[..., tuple[RunContext, list[RunSpec]]],
) -> None:
    changes: dict[str, Any] = {"noise": 0.25, "seed": 1, "min_count": 1, "labels": 2}
    read_by = {"min_count": ("sgae/graph",), "labels": ("gcn_lstm/semantic",)}
    _, first = planned(noise=0.5)
    assert [spec.signature["graph"].partition("#")[0] for spec in first] == [
        "scenes:noise=0.5[min10]",
        "scenes:noise=0.5[labels20]",
    ]
    for name, value in changes.items():
        _, found = planned(**{"noise": 0.5, name: value})
        for one, other in zip(first, found, strict=True):
            moved = one.model in read_by.get(name, READERS)
            assert (one.key != other.key) == (one.signature["graph"] != other.signature["graph"]) == moved, name


def test_sizes_of_models_follow_from_the_graphs_of_training_images(
    planned: Callable[..., tuple[RunContext, list[RunSpec]]],
) -> None:
    context, specs = planned(min_count=1)
    sizes = [config.arguments for spec in specs if isinstance(config := config_of(spec), TrainedRun)]
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
        ((*SEEN, "--set", "features.graphs.min_count=3"), "features.graphs.source"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(
    data: Path, tmp_path: Path, options: tuple[object, ...], message: str
) -> None:
    assert message in str(bench(*run_words(data, tmp_path / "workspace", "sgae/graph", TINY), *options).exception)


def test_verify_counts_what_a_file_lacks(data: Path, tmp_path: Path) -> None:
    place = ("--workspace", tmp_path / "workspace")
    bench_ok("data", "verify", data, "--regions", "boxes", "--graphs", "scenes", *place)
    entries = json.loads((data / "dataset_scenes.json").read_text())["images"]
    graphs = [{"image_id": each["imgid"], "objects": len(each["boxes"])} for each in entries]
    graphs[0] |= {"attributes": [[0, "unheard"]], "relations": [[0, 0, "on"]]}
    graphs[1]["objects"] += 1
    graphs[2]["relations"] = [[0, 9, "on"]]
    graphs[3]["image_id"] = 999
    (tmp_path / "g.json").write_text(json.dumps({"format": "captionbench graphs 1", "graphs": graphs}))
    found = bench("data", "verify", data, "--regions", "boxes", "--graphs", tmp_path / "g.json", *place)
    assert found.exit_code == 1, found.output
    counted = f"{len(entries) - 3} images with a usable graph, 3 without"
    said = ("objects, but", "of objects 0 and 9", "has no graph", "1 words are those", "0 others are read")
    for told in (counted, *said):
        assert told in found.output, told


def test_no_features_are_made_that_no_model_looks_at(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("extracted")

    monkeypatch.setattr(run_features, "extract_features", refuse)
    bench_ok(*words(data, tmp_path / "ws", "blind,human", "--backbone", "filterbank"))
    with pytest.raises(AssertionError, match="extracted"):
        raise bench(*words(data, tmp_path / "ws", "blind,retrieval", "--backbone", "filterbank")).exception  # type: ignore[misc]


def test_an_unreachable_hub_is_told_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tried: list[object] = []

    def unreachable(address: object, timeout: float | None = None) -> socket.socket:
        tried.append((address, timeout))
        raise OSError("no route")

    monkeypatch.setattr(socket, "create_connection", unreachable)
    for name in ("https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    before = constants.HF_HUB_OFFLINE
    with quick_hub():
        assert constants.HF_HUB_OFFLINE
    assert before == constants.HF_HUB_OFFLINE
    with pytest.raises(BenchError, match="could not be fetched") as caught:
        open_backbone(FeatureConfig(backbone="mobilenetv3_small_050.lamb_in1k"))
    assert "--backbone-weights FILE" in (caught.value.hint or "")
    assert len(tried) == 2
    monkeypatch.setenv("https_proxy", "http://proxy:1")
    with quick_hub():
        assert before == constants.HF_HUB_OFFLINE
    assert len(tried) == 2
