"""`bench data` as a user meets it."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from harness.data.scenes.dataset import SCENES, ScenesConfig
from harness.utils.errors import BenchError
from tests.harness.conftest import bench_ok, bench_or_raise, heavy_packages_of_each


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Two pictures, one in each of two splits."""
    (tmp_path / "photos").mkdir()
    images = [
        {"imgid": number, "filename": f"{number}.png", "split": split, "sentences": [{"raw": "A dog."}]}
        for number, split in enumerate(("train", "test"))
    ]
    (tmp_path / "dataset_photos.json").write_text(json.dumps({"images": images}))
    for number in range(2):
        Image.new("RGB", (4, 4)).save(tmp_path / "photos" / f"{number}.png")
    return tmp_path


def test_every_bad_image_is_listed_and_the_exit_code_is_one(photos: Path) -> None:
    (photos / "photos" / "0.png").write_text("broken")
    (photos / "photos" / "1.png").unlink()
    code, output = bench_or_raise("data", "verify", photos, "--images", photos / "photos", "--workspace", photos / "ws")
    assert code == 1
    assert "image 0 (train): 0.png is not an image" in output
    assert "image 1 (test): 1.png is missing" in output
    assert "2 of 2 images" in output
    assert "--skip-bad-images" in output


def test_verify_reads_again_under_the_same_fingerprint(photos: Path) -> None:
    """Damage in the middle of a large file leaves the fingerprint as it was."""
    picture = photos / "photos" / "0.png"
    Image.effect_noise((120, 120), 90).save(picture)
    arguments = ("verify", photos, "--images", photos / "photos", "--workspace", photos / "ws")
    assert bench_or_raise("data", *arguments)[0] == 0
    content = bytearray(picture.read_bytes())
    content[5000:9000] = bytes(4000)
    picture.write_bytes(content)
    assert len(content) > 13_200
    assert bench_or_raise("data", *arguments)[0] == 1


def test_verify_says_how_many_captions_training_cuts(photos: Path) -> None:
    file = photos / "dataset_photos.json"
    content = json.loads(file.read_text())
    words = " ".join(f"word{number}" for number in range(25))
    content["images"][0]["sentences"] = [{"raw": "A dog."}, {"raw": words}, {"raw": "A cat."}]
    content["images"][1]["sentences"] = [{"raw": words}]
    file.write_text(json.dumps(content))
    arguments = ("data", "verify", photos, "--images", photos / "photos", "--workspace", photos / "ws")
    said = bench_ok(*arguments).output
    assert "1 of 3 training captions" in said, "the test image's is not trained on"
    assert "word0 word1" in said
    content["images"][0]["sentences"][1]["raw"] = words[: words.index(" word20")]
    file.write_text(json.dumps(content))
    assert "exceed" not in bench_ok(*arguments).output


def test_regions_are_verified_where_no_picture_is(photos: Path) -> None:
    """As in a run, which needs none where files bring the features."""
    (photos / "bu_att").mkdir()
    np.save(photos / "bu_att" / "0.npy", np.ones((2, 4), np.float32))
    arguments = ("verify", photos / "dataset_photos.json", "--workspace", photos / "ws")
    with pytest.raises(BenchError, match="none of the 2 images"):
        bench_or_raise("data", *arguments)
    code, output = bench_or_raise("data", *arguments, "--regions", photos / "bu_att")
    assert code == 1
    assert "only the regions are checked" in output
    assert "image 1 (test): has no regions" in output
    assert "1 of 2 images cannot be used (test 1)" in output


def test_images_without_a_box_are_a_finding(photos: Path) -> None:
    file = photos / "instances.json"
    arguments = ("verify", photos / "dataset_photos.json", "--images", photos / "photos", "--workspace", photos / "ws")
    for ids, code in (((0, 1), 0), ((0,), 1)):
        boxes = [{"image_id": image_id, "bbox": [0, 0, 2, 2]} for image_id in ids]
        file.write_text(json.dumps({"images": [], "annotations": boxes}))
        found, output = bench_or_raise("data", *arguments, "--regions", file)
        assert found == code
        assert ("all 2 images can be used" in output) == (code == 0)
        assert ("1 of 2 images have no box" in output) == (code == 1)
        assert ("(test 1): 1" in output) == (code == 1)


def test_boxes_without_pictures_say_how_to_give_the_sizes(photos: Path) -> None:
    h5py = pytest.importorskip("h5py", reason="uv sync --inexact --extra hdf5")
    with h5py.File(photos / "bu.h5", "w") as file:
        for image in range(2):
            file[f"{image}_features"] = np.ones((1, 4), np.float32)
            file[f"{image}_boxes"] = np.array([[0, 0, 3, 3]], np.float32)
            (photos / "photos" / f"{image}.png").unlink()
    path = photos / "dataset_photos.json"
    words = ("data", "features", path, "--regions", photos / "bu.h5", "--workspace", photos / "ws", "--device", "cpu")
    with pytest.raises(BenchError, match=r"image file is missing \(bu.h5, 0.png\)") as refused:
        bench_or_raise(*words)
    assert "annotations have no width and height" in str(refused.value)
    content = json.loads(path.read_text())
    path.write_text(json.dumps({"images": [image | {"width": 4, "height": 4} for image in content["images"]]}))
    assert bench_or_raise(*words)[0] == 0


def test_boxes_that_are_no_corners_say_what_to_write(photos: Path) -> None:
    path = photos / "dataset_photos.json"
    content = json.loads(path.read_text())
    content["images"][1]["boxes"] = [[3, 3, 1, 1]]
    path.write_text(json.dumps(content))
    words = ("--images", photos / "photos", "--regions", "boxes", "--workspace", photos / "ws", "--device", "cpu")
    with pytest.raises(BenchError, match=r"'1.png'"):
        bench_or_raise("data", "features", path, *words)


def test_verified_data_has_the_name_that_signatures_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCENES, "scenes", ScenesConfig(train=2, val=2, test=2, nocaps_per_domain=1))
    verified = bench_ok("data", "verify", "scenes", "--workspace", tmp_path).stdout
    bench_ok("run", "--models", "human", "--data", "scenes", "--workspace", tmp_path)
    tables = json.loads(bench_ok("export", "leaderboard", "--workspace", tmp_path, "--format", "json").stdout)
    [name] = {table["fingerprint"] for table in tables}
    assert f"data:{name}" in verified.split()


def test_scenes_are_drawn_once_and_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = ScenesConfig(train=2, val=1, test=1, nocaps_per_domain=1)
    monkeypatch.setitem(SCENES, "scenes", config)
    assert "drawn on first use" in bench_or_raise("data", "list", "--workspace", tmp_path)[1]
    assert "train 2, val 1, test 1, nocaps 3" in bench_ok("data", "verify", "scenes", "--workspace", tmp_path).stdout
    assert "drawn already" in bench_or_raise("data", "list", "--workspace", tmp_path)[1]


def test_nocaps_joins_a_data_set(photos: Path) -> None:
    captions = photos / "nocaps.json"
    images = [{"id": 0, "file_name": "2.png", "domain": "in-domain"}]
    captions.write_text(json.dumps({"images": images, "annotations": [{"image_id": 0, "caption": "A gnu."}]}))
    (photos / "photos" / "nocaps").mkdir()
    Image.new("RGB", (4, 4)).save(photos / "photos" / "nocaps" / "2.png")
    joined = photos / "joined.json"
    output = bench_ok("data", "nocaps", photos / "dataset_photos.json", captions, "--out", joined).stdout
    assert "nocaps 1; image N of nocaps's own file is 2 + N here" in output
    output = bench_ok("data", "verify", joined, "--images", photos / "photos", "--workspace", photos / "ws").stdout
    assert "all 3 images" in output


def test_no_torch_is_imported(photos: Path) -> None:
    words = ("data", "verify", photos, "--images", photos / "photos", "--workspace", photos / "ws")
    assert heavy_packages_of_each([words], ["torch", "timm", "pandas", "scipy"], photos) == [(0, set())]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("verify", "nothing"), "no data set at"),
        (("features", "scenes", "--device", "gpu"), "--device 'gpu' is unknown"),
    ],
)
def test_what_cannot_be_done_is_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], named: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BenchError, match=named) as caught:
        bench_or_raise("data", *words, "--workspace", tmp_path / "ws")
    assert caught.value.hint
