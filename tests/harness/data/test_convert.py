"""Other formats, converted to what runs read."""

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from harness.cli.data import FEW_TO_TEST
from harness.data.convert import LEAST_VALIDATED, split_pictures, working_rule
from harness.data.formats.annotations import AnnotatedImage
from harness.data.karpathy import read_karpathy
from harness.utils.errors import BenchError
from tests.harness.conftest import ROOT, bench_ok

MANY = [f"{number}.png" for number in range(20)]
Content = Mapping[str, Any]


def draw(folder: Path, names: Sequence[str]) -> Path:
    """Pictures that differ, of this name each."""
    for number, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 6), (number, 9 * number % 256, 3)).save(folder / name)
    return folder


def converted(folder: Path, *words: object) -> Content:
    """What `bench data convert` writes into the folder, which verifies and opens."""
    out = folder / "dataset_own.json"
    for _ in range(2):  # the second replaces what the first wrote
        said = bench_ok("data", "convert", *words, "--force", "--out", out).output
    assert f"bench data verify {out}" in said
    content: Content = json.loads(out.read_text())
    splits = [image["split"] for image in content["images"]]
    runs = {*splits} == {"train", "val", "test"} and splits.count("val") >= LEAST_VALIDATED
    assert (f"then: bench run --data {out}" in said) == runs, "no command that a run refuses"
    assert ("bench plan --detect" in said) == (runs and splits.count("test") < FEW_TO_TEST)
    assert ("train, val and test" in said) == (not runs)
    return content


def coco(folder: Path) -> Path:
    """Two pictures to train on, one to validate on, and boxes of the first."""
    draw(folder, ["train2017/1.png", "train2017/2.png", "val2017/3.png"])
    for split, ids in (("train", (1, 2)), ("val", (3,))):
        images = [{"id": i, "file_name": f"{i}.png", "width": 8, "height": 6} for i in ids]
        captions = [{"image_id": i, "caption": f"A dog {word}."} for i in ids for word in ("runs", "sits")]
        boxes = [{"image_id": 1, "bbox": [1, 2, 3, 4]}] if split == "train" else []
        for name, told in (("captions", captions), ("instances", boxes)):
            (folder / f"{name}_{split}2017.json").write_text(json.dumps({"images": images, "annotations": told}))
    return folder


def test_coco_with_its_boxes(tmp_path: Path) -> None:
    coco(tmp_path)
    captions, instances = (
        [tmp_path / f"{name}_{s}2017.json" for s in ("train", "val")] for name in ("captions", "instances")
    )
    content = converted(tmp_path, *captions, "--instances", instances[0], "--instances", instances[1])
    assert content["split_by"] == "source"
    first, second, third = content["images"]
    assert first == {
        "cocoid": 1, "filename": "1.png", "filepath": "train2017", "split": "train", "width": 8, "height": 6,
        "sentences": [{"raw": "A dog runs."}, {"raw": "A dog sits."}], "boxes": [[1, 2, 4, 6]],
    }  # fmt: skip
    assert (second["boxes"], third["split"]) == ([], "val")
    dataset = read_karpathy(tmp_path / "dataset_own.json")
    assert not dataset.faults
    assert dataset.sizes[3] == (8, 6)


def test_a_box_without_area_is_named(tmp_path: Path) -> None:
    coco(tmp_path)
    path = tmp_path / "instances_train2017.json"
    content = json.loads(path.read_text())
    content["annotations"].append({"image_id": 2, "bbox": [1, 2, 0, 4]})
    path.write_text(json.dumps(content))
    words = (tmp_path / "captions_train2017.json", "--instances", path)
    with pytest.raises(BenchError, match=re.escape("train2017/2.png: [1, 2, 0, 4]")):
        converted(tmp_path, *words)
    kept = converted(tmp_path, *words, "--skip-bad-images")
    assert [image["boxes"] for image in kept["images"]] == [[[1, 2, 4, 6]], []]
    assert "boxes that are no x, y, width, height: 1" in kept["left_out"][0]


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_a_folder_with_a_csv(tmp_path: Path, delimiter: str) -> None:
    draw(tmp_path, MANY)
    lines = [delimiter.join(("image_name", "number", "comment"))]
    lines += [delimiter.join((name, str(n), f'"One{delimiter} dog {n}."')) for name in MANY for n in (0, 1)]
    (tmp_path / "captions.csv").write_text("\n".join(lines) + "\n")
    content = converted(tmp_path, tmp_path)
    assert content["split_by"] == "hash:80/10/10"
    assert [image["filename"] for image in content["images"]] == MANY
    said = delimiter.strip()  # white space is one space
    assert content["images"][0]["sentences"] == [{"raw": f"One{said} dog {n}."} for n in (0, 1)]
    assert not read_karpathy(tmp_path).faults


def test_an_imagefolder_of_the_hub(tmp_path: Path) -> None:
    draw(tmp_path, ["train/a.png", "train/b.png", "validation/c.png", "test/d.png"])
    lines = {
        "train": [
            {"file_name": "a.png", "text": "a dog", "objects": {"bbox": [[1, 2, 3, 4]], "categories": [0]}},
            {"file_name": "b.png", "text": ["a cat", "one cat"]},
            {"file_name": "a.png", "text": "one dog", "objects": {"bbox": [[1, 2, 3, 4]]}},
        ],
        "validation": [{"file_name": "c.png", "text": "a cow"}],
        "test": [{"file_name": "d.png", "text": "a gnu"}],
    }
    for folder, entries in lines.items():
        (tmp_path / folder / "metadata.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    content = converted(tmp_path, tmp_path)
    assert content["split_by"] == "source"
    assert [(image["filepath"], image["split"]) for image in content["images"]] == [
        ("test", "test"), ("train", "train"), ("train", "train"), ("validation", "val"),
    ]  # fmt: skip
    by_name = {image["filename"]: image for image in content["images"]}
    assert [each["raw"] for each in by_name["a.png"]["sentences"]] == ["a dog", "one dog"]
    assert by_name["a.png"]["boxes"] == [[1, 2, 4, 6]]
    assert [each["raw"] for each in by_name["b.png"]["sentences"]] == ["a cat", "one cat"]
    for folder in lines:
        (tmp_path / folder / "metadata.jsonl").unlink()
    of_all = [entry | {"file_name": f"{folder}/{entry['file_name']}"} for folder in lines for entry in lines[folder]]
    (tmp_path / "metadata.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in of_all))
    assert [image["split"] for image in converted(tmp_path, tmp_path)["images"]] == ["train", "train", "val", "test"]


def test_what_is_wrong_is_named_or_left_out(tmp_path: Path) -> None:
    draw(tmp_path, MANY)
    (tmp_path / "copy.png").write_bytes((tmp_path / "3.png").read_bytes())
    (tmp_path / "link.png").symlink_to(draw(tmp_path.with_name("elsewhere"), ["x.png"]) / "x.png")
    lines = [
        "file,caption",
        *(f"{name},a dog" for name in MANY),
        "0.png,",
        "copy.png,a dog",
        "gone.png,a dog",
        "../x.png,a",
        "link.png,a",
    ]
    lines += ["1.png,a dog", "5.png"]
    table = tmp_path / "own.csv"
    table.write_text("\n".join(lines))
    with pytest.raises(BenchError) as refused:
        converted(tmp_path, table)
    expected = (
        "lines with another number of fields, or no file: 1 (line 28)",
        "missing pictures: 1 (gone.png)",
        "pictures with an empty caption: 1 (0.png)",
        "'../x.png'",
    )
    assert "'link.png' is a link" in str(refused.value)
    for problem in expected:
        assert problem in str(refused.value)
    assert "--skip-bad-images" in str(refused.value.hint)
    assert not (tmp_path / "dataset_own.json").exists()
    content = converted(tmp_path, table, "--skip-bad-images")
    assert [image["filename"] for image in content["images"]] == [*MANY, "copy.png"]
    splits = {image["filename"]: image["split"] for image in content["images"]}
    assert splits["copy.png"] == splits["3.png"], "nothing is tested on what it was trained on"
    assert len(content["left_out"]) == len(expected)
    assert len(content["images"][1]["sentences"]) == 2  # given twice, and kept


def test_a_copy_in_another_split_is_refused(tmp_path: Path) -> None:
    draw(tmp_path, MANY)
    (tmp_path / "copy.png").write_bytes((tmp_path / "3.png").read_bytes())
    rows = [f"{name},a dog,{split}" for name, split in zip(MANY, itertools.cycle(("train", "val", "test")))]
    (tmp_path / "own.csv").write_text("\n".join(["file,caption,split", *rows, "copy.png,a dog,val"]))
    with pytest.raises(BenchError, match=r"copy.png is 3.png"):
        converted(tmp_path, tmp_path / "own.csv")
    assert len(converted(tmp_path, tmp_path / "own.csv", "--split-by", "hash:40/30/30")["images"]) == len(MANY) + 1


@pytest.mark.parametrize(
    ("second", "problem"),
    [
        ({"file_name": "0.png", "text": "a cat", "split": "test"}, r"0.png \(line 21: test, before train\)"),
        ({"file_name": "x.png", "text": "a cat", "split": 3}, r"x.png \(line 21: 3\)"),
        ({"file_name": "x.png", "text": "a cat", "split": "train", "objects": {"bbox": "1, 2"}}, r"x.png \(line 21"),
        ({"file_name": "x.png", "text": "a cat", "split": "train", "objects": [1]}, r"x.png \(line 21"),
    ],
)
def test_lines_that_contradict_or_say_nothing_are_named(tmp_path: Path, second: dict[str, Any], problem: str) -> None:
    draw(tmp_path, [*MANY, "x.png"])
    lines = [{"file_name": name, "text": "a dog", "split": "train"} for name in MANY]
    (tmp_path / "metadata.jsonl").write_text("\n".join(map(json.dumps, [*lines, second])))
    with pytest.raises(BenchError, match=problem):
        converted(tmp_path, tmp_path)
    kept = converted(tmp_path, tmp_path, "--skip-bad-images")
    left_out = set() if "objects" in second else {second["file_name"]}  # of the others, the boxes alone
    assert {image["filename"] for image in kept["images"]} == {*MANY, second["file_name"]} - left_out


def test_a_picture_stays_in_its_split_when_others_come() -> None:
    few = [AnnotatedImage(number, f"{number}.jpg") for number in range(300)]
    more = [AnnotatedImage(number, f"{number}.jpg") for number in range(600)]
    split_pictures(few, "hash:80/10/10")
    split_pictures(more, "hash:80/10/10")
    assert [each.split for each in few] == [each.split for each in more[:300]]
    shares = [sum(each.split == split for each in more) for split in ("train", "val", "test")]
    assert shares == pytest.approx([480, 60, 60], abs=25)


@pytest.mark.parametrize(
    "rule", ["hash", "hash:80/10", "hash:80/20/20", "hash:0/50/50", "hash:nan/50/50", "random", "source"]
)
def test_rules_that_cannot_be_followed_are_refused(rule: str) -> None:
    with pytest.raises(BenchError, match="--split-by"):
        split_pictures([AnnotatedImage("a.jpg", "a.jpg")], rule)


def test_a_split_that_stays_empty_is_told() -> None:
    with pytest.raises(BenchError, match="leaves no picture of 1 for") as refused:
        split_pictures([AnnotatedImage("a.jpg", "a.jpg")], "hash:80/10/10")
    assert "--split-by" not in str(refused.value.hint), "one picture cannot be in three splits"


@pytest.mark.parametrize("count", [7, 12, 16, 40])
def test_a_rule_that_is_advised_fills_every_split(count: int) -> None:
    pictures = [AnnotatedImage(number, f"photo_{number}.jpg") for number in range(count)]
    rule = working_rule(picture.file for picture in pictures)
    assert rule is not None
    split_pictures(pictures, rule)
    splits = [picture.split for picture in pictures]
    assert splits.count("val") >= LEAST_VALIDATED
    assert {*splits} == {"train", "val", "test"}
    more = working_rule((picture.file for picture in pictures), tested=splits.count("test"))
    if more is not None:
        split_pictures(pictures, more)
        assert sum(picture.split == "test" for picture in pictures) > splits.count("test")
    assert working_rule(["a.jpg", "b.jpg", "c.jpg"]) is None, "three pictures are too few"


def test_one_picture_to_validate_on_gets_a_rule_and_no_run(tmp_path: Path) -> None:
    names = [f"{number}.png" for number in range(14)]
    draw(tmp_path, names)
    splits = ["train"] * 10 + ["val"] + ["test"] * 3
    rows = [f"{name},a dog on road {name},{split}" for name, split in zip(names, splits, strict=True)]
    (tmp_path / "captions.csv").write_text("\n".join(["file,caption,split", *rows]))
    said = bench_ok("data", "convert", tmp_path, "--out", tmp_path / "dataset_own.json").output
    assert "then:" not in said
    [rule] = re.findall(r"--split-by (\S+)", said)
    assert converted(tmp_path, tmp_path, "--split-by", rule)["split_by"] == rule
    said = bench_ok(
        "data", "convert", tmp_path, "--split-by", rule, "--force", "--out", tmp_path / "dataset_own.json"
    ).output
    assert "then: bench run" in said


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("a.csv", "picture,words\na.png,a dog\n", "has no column of the pictures' files"),
        ("a.csv", 'file,caption\na.png,"a dog\n', "line 2"),
        ("metadata.jsonl", '{"file_name": "a.png"}\n', "has no caption"),
        ("metadata.jsonl", '{"text": "a dog"}\n', "file_name"),
        ("metadata.jsonl", "{\n", "line 1 is not valid JSON"),
        ("metadata.jsonl", '{"file_name": "a.png", "text": "a", "text": "b"}', "'text' twice"),
        ("captions.json", '{"images": []}', "no known format"),
        ("own.doc", "", "no known format"),
    ],
)
def test_formats_that_cannot_be_read_are_told(tmp_path: Path, name: str, text: str, why: str) -> None:
    draw(tmp_path, ["a.png"])
    (tmp_path / name).write_text(text)
    with pytest.raises(BenchError, match=why):
        converted(tmp_path, tmp_path / name)


def test_the_pages_entry_is_read_whole(tmp_path: Path) -> None:
    (block,) = re.findall(r"```json\n(.*?)```", (ROOT / "docs/own_data.md").read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "dataset_photos.json").write_text(block)
    draw(tmp_path, ["2026/beach.jpg"])
    dataset = read_karpathy(tmp_path)
    (sample,) = dataset.split("train")
    assert (dataset.name, sample.file, sample.domain) == ("photos", "2026/beach.jpg", "in-domain")
    assert sample.boxes == ((12, 40, 220, 310), (300, 55, 480.5, 320))
    assert (len(sample.captions), dataset.sizes, dataset.faults) == (2, {1: (640, 480)}, {})
