"""Submission files: complete, one caption an image, pure ASCII, under the names that the servers want."""

import json
import zipfile

import pytest

from harness.data.formats.predictions import Predictions
from harness.metrics.submission import SPLITS, read_image_list, write_submission
from harness.utils.errors import BenchError

CAPTIONS = {2: "a café\n\u2028 by the sea", 9: "two \U0001f600 dogs", 1: "one"}


@pytest.fixture
def images(tmp_path, monkeypatch):
    for splits in SPLITS.values():
        for split in splits:
            monkeypatch.setitem(splits, split, 3)
    path = tmp_path / "image_info_test2014.json"
    path.write_text(json.dumps({"images": [{"id": 9}, {"id": 2}, {"id": 1}]}))
    return path


def write(images, out, captions=CAPTIONS, problems=None, **options):
    options = {"server": "coco", "split": "test2014", "algorithm": "mine", "check": lambda _: None, **options}
    return write_submission(Predictions(captions, problems or {}), images, out, **options)


def test_coco_wants_both_splits_in_one_archive(images, tmp_path):
    (first,) = write(images, tmp_path / "up")
    assert first.name == "captions_test2014_mine_results.json"
    text = first.read_bytes().decode("ascii")
    assert json.loads(text) == [
        {"image_id": 9, "caption": "two \U0001f600 dogs"},
        {"image_id": 2, "caption": "a café by the sea"},
        {"image_id": 1, "caption": "one"},
    ]
    written = write(images, tmp_path / "up", split="val2014")
    assert [path.name for path in written] == ["captions_val2014_mine_results.json", "mine_results.zip"]
    with zipfile.ZipFile(written[1]) as archive:
        assert sorted(archive.namelist()) == [
            "captions_test2014_mine_results.json",
            "captions_val2014_mine_results.json",
        ]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"captions": {1: "one", 2: "two"}}, r"1 image missing \(9\)"),
        ({"captions": CAPTIONS | {7: "x"}}, r"image_info_test2014.json \(7\)"),
        (
            {"captions": {1: "a", 2: "b"}, "problems": {"with an empty caption": ["9"]}},
            r"1 image with an empty caption",
        ),
        ({"split": "train2014"}, "has no split 'train2014'"),
        ({"algorithm": "../x"}, "cannot be part of a file name"),
        ({"algorithm": ""}, "cannot be part of a file name"),
    ],
)
def test_what_the_server_would_refuse_is_refused(images, tmp_path, change, says):
    with pytest.raises(BenchError, match=says):
        write(images, tmp_path / "up", **change)
    assert not (tmp_path / "up").exists()


def test_a_list_of_some_images_is_refused(images, tmp_path):
    images.write_text(json.dumps({"images": [{"id": 9}, {"id": 2}]}))
    with pytest.raises(BenchError, match=r"2 images, .*test of nocaps has 3"):
        write(images, tmp_path / "up", CAPTIONS, server="nocaps", split="test")


@pytest.mark.parametrize("content", [None, "no JSON", '["a name"]', '{"images": []}', json.dumps([{"image_id": 1}])])
def test_a_file_that_is_no_list_of_images_names_the_server_s(tmp_path, content):
    path = tmp_path / "list.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(BenchError, match="--images") as caught:
        read_image_list(path, "nocaps")
    assert "--images nocaps_test_image_info.json" in (caught.value.hint or "")
