"""A model of two streams, regions and a grid: trained beside others, captioning, and runs without one of the two."""

from __future__ import annotations

import json
import re
from pathlib import Path

import h5py
import numpy as np
import pytest

from harness.benchmark.saved_model import SavedModel
from results import Store
from results.runs.leaderboard import leaderboard
from results.runs.reading import attention_maps, failures
from tests.harness.conftest import TINY, DrawScenes, bench, run_words

pytestmark = pytest.mark.usefixtures("without_meteor")

BOXES = ("--regions", "boxes", "--region-bins", "2", "--backbone", "filterbank")


@pytest.fixture(scope="module")
def data(draw_scenes: DrawScenes) -> Path:
    return draw_scenes(train=8, val=2, test=2)


@pytest.fixture(scope="module")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The workspace of a run on the data set's own boxes, four bins each, so that channels of the streams differ."""
    workspace = tmp_path_factory.mktemp("trained") / "workspace"
    done = bench(*run_words(data, workspace, "dlct,transformer_base", TINY), *BOXES)
    assert done.exit_code == 0, done.output
    return workspace


def test_it_is_not_ranked_among_models_that_see_less(trained: Path, data: Path) -> None:
    with Store(trained / "bench.sqlite", read_only=True) as store:
        groups = leaderboard(store)
        keys = {row.model: row.keys[0] for group in groups for row in group.rows}
        maps = attention_maps(store, keys["dlct"], "test")
    seen = {group.rows[0].model: group.signature["feat"] for group in groups}
    assert seen.keys() == {"dlct", "transformer_base"}
    assert seen["dlct"] == f"{seen['transformer_base']}+grid"
    known = {image["imgid"]: image for image in json.loads((data / "dataset_scenes.json").read_text())["images"]}
    for record in maps.values():
        np.testing.assert_allclose(record.boxes or (), np.array(known[record.image_id]["boxes"]) / 96, atol=1e-6)
    both, one = (SavedModel.load(trained / "runs" / keys[name]) for name in ("dlct", "transformer_base"))
    assert both.visual_dim == one.visual_dim == 4 * both.arguments["grid_dim"]
    assert "grid_dim" not in one.arguments


def test_its_run_captions_and_is_used_again(trained: Path, data: Path) -> None:
    [folder] = (folder for folder in (trained / "runs").iterdir() if folder.name.startswith("dlct-s0"))
    captioned = bench("caption", "--data", data, "--split", "val", "--run", folder)
    assert captioned.exit_code == 0, captioned.output
    assert len(captioned.stdout.splitlines()) == 2
    again = bench(*run_words(data, trained, "dlct", TINY), *BOXES)
    assert "0 finished, 1 re-used, 0 failed" in again.output


def test_without_regions_or_grid_its_row_alone_fails(data: Path, tmp_path: Path) -> None:
    att = tmp_path / "bu_att"
    att.mkdir()
    for image in json.loads((data / "dataset_scenes.json").read_text())["images"]:
        np.savez(att / f"{image['imgid']}.npz", feat=np.ones((2, 6), np.float32))
    for shown, what in ((("--backbone", "filterbank"), "grid cells alone"), (("--regions", att), "regions from files")):
        workspace = tmp_path / what.partition(" ")[0]
        done = bench(*run_words(data, workspace, "dlct,show_tell", TINY), *shown)
        assert done.exit_code == 1
        with Store(workspace / "bench.sqlite", read_only=True) as store:
            assert [row.model for row in leaderboard(store)[0].rows] == ["show_tell"]
            [failure] = failures(store)
        assert failure.model == "dlct"
        assert f"needs regions with boxes and the grid that they are cut from, and here are {what}" in str(
            failure.reason
        )


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
    done = bench(*run_words(data, workspace, "dlct", TINY), "--regions", file)
    assert done.exit_code == 0, done.output
    with Store(workspace / "bench.sqlite", read_only=True) as store:
        [group] = leaderboard(store)
    assert re.fullmatch(r"regions\[both\.hdf5,all\]#[0-9a-f]{8},[0-9-]+\+grid#[0-9a-f]{8}", group.signature["feat"])
    folder = workspace / "runs" / group.rows[0].keys[0]
    assert SavedModel.load(folder).arguments["grid_dim"] == 5
    captioned = bench("caption", "--data", data, "--split", "val", "--run", folder)
    assert captioned.exit_code == 0, captioned.output

    with h5py.File(file, "a") as opened:
        del opened[f"{images[0]['imgid']}_grids"]
    refused = bench(*run_words(data, tmp_path / "other", "dlct", TINY), "--regions", file)
    assert f"1 of {len(images)} images cannot be used" in str(refused.exception)
    assert f"has features but no {images[0]['imgid']}_grids (both.hdf5)" in str(refused.exception)
