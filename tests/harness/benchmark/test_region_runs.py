"""`bench run --regions`: all models see the regions, bad ones are named or skipped, and trained runs caption."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import numpy as np
import pytest
from huggingface_hub import constants
from PIL import Image
from typer.testing import Result

from harness.benchmark.saved_model import SavedModel
from harness.data import prepare_features as run_features
from harness.data.backbones.backbone import open_backbone
from harness.data.hub import quick_hub
from harness.utils.errors import BenchError
from results import Store
from results.runs.leaderboard import leaderboard
from results.runs.reading import attention_maps, datasets, failures, one_run
from tests.harness.conftest import TINY, DrawScenes, bench, run_words

pytestmark = pytest.mark.usefixtures("without_meteor")

CHANNELS = 6


@pytest.fixture(scope="module")
def data(draw_scenes: DrawScenes) -> Path:
    return draw_scenes(train=24, val=4, test=6)


def bench_run(data: Path, workspace: Path, models: str, *extra: object) -> Result:
    return bench(*run_words(data, workspace, models, TINY), *extra)


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


@pytest.fixture(scope="module")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The workspace of a run on the data set's own boxes, with a model of each kind."""
    workspace = tmp_path_factory.mktemp("trained") / "workspace"
    models = "transformer_base,image_transformer,show_tell,blind,retrieval"
    done = bench_run(data, workspace, models, "--regions", "boxes", "--backbone", "filterbank")
    assert done.exit_code == 0, done.output
    return workspace


def run_of(workspace: Path, model: str) -> Path:
    [folder] = (folder for folder in (workspace / "runs").iterdir() if folder.name.startswith(f"{model}-s0"))
    return folder


def test_every_kind_of_model_is_trained_on_the_regions(trained: Path) -> None:
    with Store(trained / "bench.sqlite", read_only=True) as store:
        [group] = leaderboard(store)
        assert {row.model for row in group.rows} == {"transformer_base", "image_transformer", "show_tell", "blind"}
        for row in group.rows:
            assert row.scores["CIDEr-D"].mean is not None
            seen = one_run(store, row.keys[0]).signature["feat"]
            assert seen.startswith("regions[boxes,all,roi1,filterbank-v1[grid=8]@96]#")
            assert seen.endswith(",1-3")
    stored = SavedModel.load(run_of(trained, "transformer_base"))
    assert stored.features.regions is not None
    assert stored.features.regions.source == "boxes"


def test_words_look_at_the_regions_boxes(trained: Path, data: Path) -> None:
    known = {image["imgid"]: image for image in json.loads((data / "dataset_scenes.json").read_text())["images"]}
    with Store(trained / "bench.sqlite", read_only=True) as store:
        maps = {row.model: attention_maps(store, row.keys[0], "test") for row in leaderboard(store)[0].rows}
    assert {model for model, found in maps.items() if found} <= {"transformer_base", "image_transformer"}
    records = [record for found in maps.values() for record in found.values()]
    assert records, "these models say a word of some image"
    for record in records:
        expected = np.array(known[record.image_id]["boxes"]) / 96
        np.testing.assert_allclose(record.boxes or (), expected, atol=1e-6)
        np.testing.assert_allclose(np.sum(record.weights, 1), 1.0, atol=0.01)


def test_the_same_command_again_uses_what_is_finished(trained: Path, data: Path) -> None:
    again = bench_run(data, trained, "transformer_base", "--regions", "boxes", "--backbone", "filterbank")
    assert "0 finished, 1 re-used, 0 failed" in again.output


def test_a_run_on_regions_captions_what_has_regions(trained: Path, data: Path, tmp_path: Path) -> None:
    folder = run_of(trained, "transformer_base")
    split = bench("caption", "--data", data, "--split", "val", "--run", folder)
    assert split.exit_code == 0, split.output
    assert len(split.stdout.splitlines()) == 4
    pictures = [data / "images" / f"{number:06d}.png" for number in (24, 25)]
    bare = bench("caption", *pictures, "--run", folder)
    assert isinstance(bare.exception, BenchError)
    assert "was trained on regions (boxes)" in str(bare.exception)
    entries = {image["imgid"]: image for image in json.loads((data / "dataset_scenes.json").read_text())["images"]}
    boxes = [
        {"image_id": number, "bbox": [x1, y1, x2 - x1, y2 - y1], "score": 0.9}
        for number in (24, 25)
        for x1, y1, x2, y2 in entries[number]["boxes"]
    ]
    (tmp_path / "boxes.json").write_text(json.dumps(boxes))
    own = bench("caption", *pictures, "--run", folder, "--regions", tmp_path / "boxes.json")
    assert own.exit_code == 0, own.output
    assert [line.split(": ")[1] for line in own.stdout.splitlines()] == [
        line.split(": ")[1] for line in split.stdout.splitlines()[:2]
    ]
    boxes[0]["bbox"] = [0, 0, 500, 10]
    (tmp_path / "boxes.json").write_text(json.dumps(boxes))
    torn = bench("caption", *pictures, "--run", folder, "--regions", tmp_path / "boxes.json")
    assert torn.exit_code == 1
    assert "000024.png: image 24: box 0 (0, 0, 500, 10) lies outside" in torn.stderr
    assert len(torn.stdout.splitlines()) == 1


def test_a_run_on_windows_captions_any_picture(data: Path, tmp_path: Path) -> None:
    done = bench_run(data, tmp_path / "ws", "transformer_base", "--regions", "windows:2", "--backbone", "filterbank")
    assert done.exit_code == 0, done.output
    folder = run_of(tmp_path / "ws", "transformer_base")
    split = bench("caption", "--data", data, "--split", "val", "--run", folder)
    alone = bench("caption", data / "images" / "000024.png", "--run", folder)
    assert alone.exit_code == 0, alone.output
    [line] = alone.stdout.splitlines()
    assert line.split(": ")[1] == split.stdout.splitlines()[0].split(": ")[1]


def test_pictures_without_a_number_cannot_be_looked_up(trained: Path, tmp_path: Path) -> None:
    Image.new("RGB", (9, 9)).save(tmp_path / "dog.png")
    (tmp_path / "boxes.json").write_text("[]")
    done = bench(
        "caption", tmp_path / "dog.png", "--run", run_of(trained, "blind"), "--regions", tmp_path / "boxes.json"
    )
    assert isinstance(done.exception, BenchError)
    assert "dog.png has no image id at its end" in str(done.exception)


def test_a_stored_run_is_scored_on_the_regions_that_it_knows(trained: Path, data: Path) -> None:
    key = run_of(trained, "show_tell").name
    done = bench_run(data, trained, key, "--regions", "boxes", "--backbone", "filterbank")
    assert done.exit_code == 0, done.output
    for extra, complaint in (
        ((), "sees regions, and here are grid cells"),
        (("--regions", "boxes", "--region-bins", 2), "was trained on other regions"),
    ):
        done = bench_run(data, trained, key, "--backbone", "filterbank", *extra)
        assert done.exit_code == 1
        with Store(trained / "bench.sqlite", read_only=True) as store:
            assert any(complaint in (failure.reason or "") for failure in failures(store))


def test_files_of_features_need_neither_backbone_nor_pictures(data: Path, tmp_path: Path) -> None:
    att = region_folder(data, tmp_path)
    annotations = json.loads((data / "dataset_scenes.json").read_text())
    for image in annotations["images"]:
        image |= {"width": 96, "height": 96}
    (tmp_path / "dataset_scenes.json").write_text(json.dumps(annotations))
    done = bench_run(tmp_path / "dataset_scenes.json", tmp_path / "ws", "updown", "--regions", att)
    assert done.exit_code == 0, done.output
    with Store(tmp_path / "ws" / "bench.sqlite", read_only=True) as store:
        [row] = leaderboard(store)[0].rows
        assert one_run(store, row.keys[0]).signature["feat"].startswith("regions[bu_att,all]#")


def test_models_that_need_boxes_fail_without_them(data: Path, tmp_path: Path) -> None:
    att = region_folder(data, tmp_path, boxes=False)
    done = bench_run(data, tmp_path / "ws", "updown,image_transformer", "--regions", att)
    assert done.exit_code == 1
    assert "has no boxes" in done.output
    assert "no attention maps: the model gets regions without boxes" in " ".join(done.output.split())
    with Store(tmp_path / "ws" / "bench.sqlite", read_only=True) as store:
        [row] = leaderboard(store)[0].rows
        assert row.model == "updown"
        assert not attention_maps(store, row.keys[0], "test")
        [failure] = failures(store)
        assert failure.model == "image_transformer"
        assert "needs the regions' boxes" in (failure.reason or "")


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
    refused = bench_run(data, tmp_path / "ws", "transformer_base", "--regions", att)
    assert isinstance(refused.exception, BenchError)
    assert "5 of 34 images cannot be used" in str(refused.exception)
    for complaint in COMPLAINTS:
        assert complaint in str(refused.exception)
    assert "--skip-bad-images" in (refused.exception.hint or "")
    skipped = bench_run(data, tmp_path / "ws", "transformer_base", "--regions", att, "--skip-bad-images")
    assert skipped.exit_code == 0, skipped.output
    assert "5 bad images skipped, 1 of them from evaluated splits" in skipped.output
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
    assert "5 of 34 images cannot be used (train 4, test 1)" in checked.output
    assert f"image 2 (train): {COMPLAINTS[0].removeprefix('image 2: ')}" in checked.output
    assert not (tmp_path / "ws" / "cache" / "regions").exists()
    words = ("data", "features", data, "--regions", att, "--workspace", tmp_path / "ws", "--device", "cpu")
    assert isinstance(bench(*words).exception, BenchError)
    made = bench(*words, "--skip-bad-images", "--region-count", "fixed:36")
    assert made.exit_code == 0, made.output
    assert "regions[bu_att,fixed:36]#" in made.output
    assert ",1-36: 29 images ready" in made.output


def test_no_features_are_made_that_no_model_looks_at(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("extracted")

    monkeypatch.setattr(run_features, "extract_features", refuse)
    done = bench_run(data, tmp_path / "ws", "blind,human", "--backbone", "filterbank")
    assert done.exit_code == 0, done.output
    with pytest.raises(AssertionError, match="extracted"):
        raise bench_run(data, tmp_path / "ws", "blind,retrieval", "--backbone", "filterbank").exception  # type: ignore[misc]


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
        open_backbone("mobilenetv3_small_050.lamb_in1k")
    assert "--backbone-weights FILE" in (caught.value.hint or "")
    assert len(tried) == 2
    monkeypatch.setenv("https_proxy", "http://proxy:1")
    with quick_hub():
        assert before == constants.HF_HUB_OFFLINE
    assert len(tried) == 2
