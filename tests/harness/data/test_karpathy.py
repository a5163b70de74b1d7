"""Karpathy's format: what is read, what is an error, and what is kept aside as one image's fault."""

import gzip
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from harness.data.dataset import Dataset
from harness.data.opening import open_dataset
from harness.data.verify import find_bad_images
from harness.utils.errors import BenchError
from tests.harness.data.counting_backbone import Told

Make = Callable[..., Any]


def opened(place: Path, images: Path | None = None) -> Dataset:
    return open_dataset(str(place), cache_dir=place.parent / "cache", images=images)


def test_a_folder_is_read_in_order(entry: Make, folder: Make) -> None:
    entries = [entry(7, "b.png"), entry(3, "a.png", "restval"), entry(5, "c.png", "val"), entry(1, "d.png", "test")]
    dataset = opened(folder(entries))
    assert dataset.name == "tiny"
    assert [(sample.image_id, sample.file, sample.split) for sample in dataset.samples] == [
        (7, "b.png", "train"),
        (3, "a.png", "train"),
        (5, "c.png", "val"),
        (1, "d.png", "test"),
    ]
    assert dataset.split("val")[0].captions == ("Caption 0 of image 5.", "Caption 1 of image 5.")
    assert all(dataset.path(sample).is_file() for sample in dataset.samples)
    assert not dataset.faults
    with pytest.raises(BenchError, match="no images in its 'nocaps' split"):
        dataset.split("nocaps")


def test_coco_ids_and_folders_by_filepath(entry: Make, folder: Make) -> None:
    root = folder([entry(0, "x.jpg", cocoid=42, filepath="val2014"), entry(1, "y.jpg", cocoid=9, filepath="train2014")])
    (root / "images" / "val2014").mkdir()
    (root / "images" / "x.jpg").rename(root / "images" / "val2014" / "x.jpg")
    assert [(sample.image_id, sample.file) for sample in opened(root).samples] == [(42, "val2014/x.jpg"), (9, "y.jpg")]


def test_pictures_may_lie_beside_the_annotations_or_elsewhere(entry: Make, folder: Make, tmp_path: Path) -> None:
    root = folder([entry(0, "x.jpg")])
    usual = opened(root)
    elsewhere = tmp_path / "elsewhere"
    shutil.move(root / "images", elsewhere)
    moved = opened(root / "dataset_tiny.json", images=elsewhere)
    assert moved.path(moved.samples[0]).is_file()
    shutil.copy(elsewhere / "x.jpg", root / "x.jpg")
    beside = opened(root)
    assert beside.root == root
    assert usual.fingerprint == moved.fingerprint == beside.fingerprint


def test_captions_are_single_lines_of_valid_text(entry: Make, folder: Make) -> None:
    raw = ["  A dog\n runs\u2028fast.\x00 ", "   ", "\ud800 cat", "A cat"]
    sentences = [{"raw": text} for text in raw] + [{"tokens": ["only", "words"]}, "text"]
    captions = opened(folder([entry(0, "x.jpg", sentences=sentences)])).samples[0].captions
    assert captions[0] == "A dog runs fast."
    assert captions[-3:] == ("A cat", "only words", "text"), "of sentences without raw text"
    assert len(captions) == 5
    assert "\n".join(captions).encode()


def test_domains_and_boxes_are_kept(entry: Make, folder: Make) -> None:
    root = folder(
        [
            entry(0, "x.jpg", "nocaps", domain="near-domain", boxes=[[0, 1, 2.5, 3]]),
            entry(1, "y.jpg", boxes=[]),
            entry(2, "z.jpg"),
        ]
    )
    first, second, third = opened(root).samples
    assert (first.domain, first.boxes) == ("near-domain", ((0.0, 1.0, 2.5, 3.0),))
    assert (second.domain, second.boxes, third.boxes) == (None, (), None)


def test_faults_of_single_images_are_collected(entry: Make, folder: Make, tmp_path: Path) -> None:
    outside = tmp_path / "secret.png"
    Image.new("RGB", (4, 4)).save(outside)
    entries = [
        entry(0, "good.png"),
        entry(1, "../../secret.png", "test"),
        entry(2, str(outside)),
        entry(3, "..\\..\\secret.png"),
        entry(4, "C:\\secret.png"),
        entry(5, "secret.png", filepath="../.."),
        entry(6, "link.png", "test"),
        entry(7, "linked/secret.png"),
        entry(8, "good.png"),
        entry(9, "./good.png"),
        entry(10, "silent.png", "val", sentences=[]),
        entry(11, "blank.png", sentences=[{"raw": " \n"}]),
        entry(12, "odd.png", sentences=None),
        entry(13, None),
        entry(14, 5),
        entry(15, ""),
        entry(16, "nul\0.png"),
        entry(17, "\x1b[31m.png"),
        entry(18, "boxed.png", boxes=[[5, 0, 1, 3]]),
        entry(19, "boxed2.png", boxes=[[0, 0, 1]]),
        entry(20, "placed.png", domain=["near"]),
        entry(21, "missing.png"),
        entry(22, "circle.png"),
        entry(23, "good.png", filepath="."),
    ]
    root = folder(entries, pictures=False)
    for name in ("good", "silent", "blank", "odd", "boxed", "boxed2", "placed"):
        Image.new("RGB", (4, 4)).save(root / "images" / f"{name}.png")
    (root / "images" / "link.png").symlink_to(outside)
    (root / "images" / "linked").symlink_to(tmp_path)
    (root / "images" / "circle.png").symlink_to("circle.png")
    dataset = opened(root)
    reasons = {
        **dict.fromkeys((1, 2, 3, 4, 5), "leads out of"),
        **dict.fromkeys((6, 7), "is a link that leads out of"),
        **dict.fromkeys((8, 9, 23), "'good.png' is already the file of image 0"),
        **dict.fromkeys((10, 11, 12), "has no sentences"),
        **dict.fromkeys((13, 14, 15), "has no file name"),
        **dict.fromkeys((16, 17), "unprintable"),
        **dict.fromkeys((18, 19), "boxes"),
        20: "domain",
    }
    assert set(dataset.faults) == set(reasons)
    for image_id, reason in reasons.items():
        assert reason in dataset.faults[image_id]
        assert dataset.faults[image_id].isprintable()
    assert "'silent.png'" in dataset.faults[10]
    assert len(dataset.samples) == len(entries)
    assert [sample.image_id for sample in dataset.split("test")] == [1, 6]
    for sample in dataset.samples:
        assert os.path.realpath(dataset.path(sample)).startswith(str(root))
        assert bool(sample.file) == (sample.image_id in {0, 10, 11, 12, 18, 19, 20, 21, 22})


def test_a_picture_folder_that_is_a_link_must_be_named(entry: Make, folder: Make, tmp_path: Path) -> None:
    root = folder([entry(0, "x.jpg")])
    shutil.move(root / "images", tmp_path / "pictures")
    (root / "images").symlink_to(tmp_path / "pictures")
    with pytest.raises(BenchError, match="outside the data set") as caught:
        opened(root)
    assert f"--images {tmp_path / 'pictures'}" in str(caught.value.hint)
    assert not opened(root, images=root / "images").faults


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"\xff\xfe\xfd", "not text in UTF-8"),
        (b"[" * 100_000, "not valid JSON"),
        (gzip.compress(b'{"images": []}', mtime=0)[:-12], "cannot be read"),
        (b"\x1f\x8b not gzip", "cannot be read"),
        (b"[]", "no known format"),
        (b"{}", "no known format"),
        (b'{"images": {}}', "no known format"),
        (b'{"images": [1]}', "no known format"),
        (b'{"images": []}', "lists no images"),
        (b'{"images": [{"id": 1}], "annotations": []}', "without a reference caption"),
    ],
)
def test_a_file_of_another_kind_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "dataset.json").write_bytes(content)
    with pytest.raises(BenchError, match=message) as caught:
        opened(tmp_path)
    assert "dataset.json" in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([{}, {"imgid": 0}], r"1 image listed more than once \(0\)"),
        ([{"cocoid": 5}, {"cocoid": 5}], "listed more than once"),
        ([{"imgid": "1"}, {}], "without a whole number.*entry 0"),
        ([{"imgid": True}, {"imgid": None}], "without a whole number.*entry 0, entry 1"),
        ([{"split": "minival"}, {}], r"\(a.png \('minival'\)"),
        ([{"split": ["test"]}, {}], "split is none of"),
        ([{"split": None, "filename": None}, {}], "entry 0"),
    ],
)
def test_ids_and_splits_must_be_clear(
    entry: Make, folder: Make, changes: list[dict[str, object]], message: str
) -> None:
    entries = [entry(0, "a.png") | changes[0], entry(1, "b.png") | changes[1]]
    with pytest.raises(BenchError, match=message):
        opened(folder(entries, pictures=False))


def test_what_is_not_there_is_named(tmp_path: Path, entry: Make, folder: Make) -> None:
    with pytest.raises(BenchError, match=r"no data set at .*nowhere"):
        opened(tmp_path / "nowhere")
    with pytest.raises(BenchError, match=r"contains no dataset\*\.json"):
        opened(tmp_path)
    root = folder([entry(0, "a.png")])
    with pytest.raises(BenchError, match=r"image folder .* does not exist"):
        opened(root, images=tmp_path / "nowhere")
    shutil.copy(root / "dataset_tiny.json", root / "dataset_other.json")
    with pytest.raises(BenchError, match=r"dataset_other\.json, dataset_tiny\.json"):
        opened(root)


def test_the_fingerprint_changes_with_any_annotation_or_picture(entry: Make, folder: Make) -> None:
    root = folder([entry(0, "a.png"), entry(1, "b.png")])
    before = opened(root).fingerprint
    assert opened(root).fingerprint == before
    file = root / "dataset_tiny.json"
    text = file.read_text()
    seen = {before}
    for old, new in [
        ("Caption 1 of image 0", "Caption"),
        ('"split": "train"', '"split": "val"'),
        ('"imgid": 1', '"imgid": 2'),
    ]:
        file.write_text(text.replace(old, new))
        seen.add(opened(root).fingerprint)
    file.write_text(json.dumps(json.loads(text), indent=3))  # the same annotations, written another way
    assert opened(root).fingerprint == before
    picture = root / "images" / "a.png"
    whole = picture.read_bytes()
    for changed in (whole + b"x", whole[:-1] + b"x", b"x" + whole[1:], b""):
        picture.write_bytes(changed)
        seen.add(opened(root).fingerprint)
    picture.unlink()
    seen.add(opened(root).fingerprint)
    assert len(seen) == 9
    picture.write_bytes(whole)
    os.utime(picture, (0, 0))
    assert opened(root).fingerprint == before


def test_a_servers_list_of_images_is_one_split(tmp_path: Path) -> None:
    listed = tmp_path / "image_info.json"
    entries = [{"id": 42, "file_name": "b.jpg", "width": 9, "height": 9}, {"id": 7, "file_name": "a.jpg"}]
    listed.write_text(json.dumps({"info": {}, "images": entries}))
    samples = opened(listed).split("test")
    assert [(sample.image_id, sample.file, sample.captions) for sample in samples] == [
        (42, "b.jpg", ()),
        (7, "a.jpg", ()),
    ]


def test_references_whose_picture_cannot_be_used_are_named(tmp_path: Path) -> None:
    names = {1: "a.png", 2: "a.png", 3: "../b.png"}
    Image.new("RGB", (9, 9)).save(tmp_path / "a.png")
    images = [{"id": number, "file_name": name} for number, name in names.items()]
    annotations = [{"id": number, "image_id": number, "caption": "a dog"} for number in names]
    (tmp_path / "refs.json").write_text(json.dumps({"images": images, "annotations": annotations}))
    assert list(find_bad_images(opened(tmp_path / "refs.json"), cache_dir=tmp_path, reporter=Told())) == [2, 3]


@pytest.fixture
def damaged(entry: Make, folder: Make, tmp_path: Path) -> Dataset:
    """Bad images and bad annotations among good ones."""
    names = ["truncated.jpg", "empty.jpg", "missing.jpg", "dot.png", "plain.jpg"]
    entries = [entry(number, name, "test" if number % 2 else "train") for number, name in enumerate(names)]
    entries += [
        entry(20, "silent.png", "test", sentences=[]),
        entry(21, "plain.jpg", "val"),
        entry(22, "../outside.png"),
        entry(23, "speechless-and-missing.png", sentences=[]),
    ]
    root: Path = folder(entries, pictures=False)
    images = root / "images"
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (60, 80, 3), np.uint8))
    for path in (images / "truncated.jpg", images / "plain.jpg", images / "silent.png", root / "outside.png"):
        noise.save(path)
    (images / "truncated.jpg").write_bytes((images / "truncated.jpg").read_bytes()[:-900])
    (images / "empty.jpg").touch()
    Image.new("RGB", (1, 1), "red").save(images / "dot.png")
    return open_dataset(str(root), cache_dir=tmp_path / "cache")


EXPECTED = {
    0: "truncated.jpg cannot be decoded: .*truncated",
    1: "empty.jpg is an empty file",
    2: "missing.jpg is missing",
    20: "'silent.png' has no sentences",
    21: "'plain.jpg' is already the file of image 4",
    22: "'../outside.png' leads out",
    23: "'speechless-and-missing.png' has no sentences; speechless-and-missing.png is missing",
}


def test_all_bad_images_are_found_and_named(damaged: Dataset, tmp_path: Path) -> None:
    bad = find_bad_images(damaged, cache_dir=tmp_path / "cache", reporter=Told())
    assert list(bad) == list(EXPECTED)
    for image_id, pattern in EXPECTED.items():
        assert re.search(pattern, bad[image_id]), bad[image_id]


def test_the_answer_is_kept_for_the_fingerprint(
    damaged: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = find_bad_images(damaged, cache_dir=tmp_path, reporter=Told())
    loads: list[Path] = []
    monkeypatch.setattr("harness.data.verify.load_image", loads.append)
    assert find_bad_images(damaged, cache_dir=tmp_path, reporter=Told()) == first
    assert list(find_bad_images(damaged, cache_dir=tmp_path, reporter=Told())) == list(first)
    assert not loads
    find_bad_images(damaged, cache_dir=tmp_path, reporter=Told(), reuse=False)
    assert len(loads) == 7
    (damaged.root / "dot.png").unlink()
    find_bad_images(open_dataset(str(damaged.root.parent), cache_dir=tmp_path), cache_dir=tmp_path, reporter=Told())
    assert len(loads) == 14


@pytest.mark.parametrize("content", ["", "[]", '{"a": 1}', "{"])
def test_a_damaged_answer_is_found_anew(damaged: Dataset, tmp_path: Path, content: str) -> None:
    first = find_bad_images(damaged, cache_dir=tmp_path / "fresh", reporter=Told())
    (kept,) = (tmp_path / "fresh").iterdir()
    kept.write_text(content)
    assert find_bad_images(damaged, cache_dir=tmp_path / "fresh", reporter=Told()) == first


def test_wrong_folder_is_reported_once(entry: Make, folder: Make, tmp_path: Path) -> None:
    root = folder([entry(number, f"{number}.png") for number in range(3)], pictures=False)
    dataset = open_dataset(str(root), cache_dir=tmp_path)
    with pytest.raises(BenchError, match=r"3 images of tiny .* 0\.png") as caught:
        find_bad_images(dataset, cache_dir=tmp_path, reporter=Told())
    assert "--images DIR" in (caught.value.hint or "")
