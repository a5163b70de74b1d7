"""Numbers beyond all sense, in options and in files of annotations: refused before anything is built."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.data import open_dataset
from harness.data.dataset import told_size
from harness.data.formats import read_predictions, read_references
from harness.data.regions.box_files import CocoBoxes
from harness.data.regions.tsv import RegionTsv
from harness.utils.errors import BenchError
from tests.harness.conftest import bench

TOO_LARGE = 2**63


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("run --seeds 99999999999999999999", "--seeds"),
        ("run --seeds 3 --first-seed 2147483646", "--first-seed"),
        ("run --seeds 2 --first-seed 2147483646 --control auto", "--first-seed"),
        ("plan --seeds 3 --first-seed 2147483646", "--first-seed"),
        ("run --jobs 99999", "--jobs"),
        (f"run --jobs {'9' * 5000}", "--jobs"),
        ("run --devices 1000 --device cpu --backbone filterbank", "--devices"),
        ("flops --beam 99999999", "--beam"),
        ("flops --models blind --position 6 --caption-length 5", "--position 6 is behind the last of 5 tokens"),
        ("flops --models blind --position 21", "--position 21 is behind the last of 20 tokens"),
        ("flops --regions 99999999", "--regions"),
        ("flops --vocab-size 99999999", "--vocab-size"),
        ("flops --visual-dim 99999999", "--visual-dim"),
        ("flops --with-backbone --image-size 99999999", "--image-size"),
        ("cost measure --beam 99999", "--beam"),
        ("cost measure --batch 1,99999999", "--batch"),
        ("cost measure --repeats 99999999", "--repeats"),
        ("cost measure --energy-seconds inf", "--energy-seconds"),
        ("cost measure --energy-seconds nan", "--energy-seconds"),
        ("cost runs --cider nan", "--cider"),
        ("cost runs --cider inf", "--cider"),
        ("caption a.png --run key --beam-size 99999999", "--beam-size"),
    ],
)
def test_options_refuse_numbers_beyond_sense(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = bench(*words.split())
    assert result.exit_code != 0
    assert isinstance(result.exception, BenchError | SystemExit)
    assert said in f"{result.exception} {result.output}"
    assert list(tmp_path.iterdir()) == []


def test_positions_up_to_the_captions_length_are_counted() -> None:
    assert bench("flops", "--models", "blind", "--position", "5", "--caption-length", "5").exit_code == 0


def test_models_of_which_nothing_was_measured_fail() -> None:
    sizes = ["--vocab-size", "5", "--beam", "6", "--batch", "1", "--repeats", "2", "--device", "cpu"]
    result = bench("cost", "measure", "--models", "blind", *sizes)
    assert result.exit_code == 1
    assert "failed: blind: nothing was measured: ZooError: beam_size must lie between 1 and" in result.output


def _write(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content))
    return path


def _karpathy(**changes: Any) -> dict[str, Any]:
    image = {"imgid": 1, "filename": "a.png", "split": "train", "sentences": [{"raw": "A dog."}], **changes}
    return {"images": [image]}


@pytest.mark.parametrize("number", [TOO_LARGE, -TOO_LARGE - 1, 10**400])
def test_ids_beyond_64_bits_are_named(tmp_path: Path, number: int) -> None:
    said = "whole number of 64 bits"
    with pytest.raises(BenchError, match=said):
        open_dataset(str(_write(tmp_path / "karpathy.json", _karpathy(imgid=number))), cache_dir=tmp_path)
    coco = {"images": [{"id": number}], "annotations": [{"image_id": number, "caption": "a dog"}]}
    with pytest.raises(BenchError, match=said):
        read_references(_write(tmp_path / "coco.json", coco))
    predictions = [{"image_id": number, "caption": "a dog"}, {"image_id": 1, "caption": "a cat"}]
    found = read_predictions(_write(tmp_path / "predictions.json", predictions))
    assert found.captions == {1: "a cat"}
    assert found.problems == {f'without a {said} as "image_id"': ["entry 0"]}


@pytest.mark.parametrize("number", [TOO_LARGE - 1, -TOO_LARGE])
def test_ids_of_64_bits_are_read(tmp_path: Path, number: int) -> None:
    file = _write(tmp_path / "karpathy.json", _karpathy(imgid=number))
    assert [sample.image_id for sample in open_dataset(str(file), cache_dir=tmp_path).samples] == [number]


def test_nocaps_ids_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    own = _write(tmp_path / "own.json", _karpathy(imgid=TOO_LARGE - 2))
    images = [{"id": i, "file_name": f"{i}.png", "domain": "in-domain"} for i in (0, 1)]
    captions = [{"id": i, "image_id": i, "caption": "a dog"} for i in (0, 1)]
    nocaps = _write(tmp_path / "nocaps.json", {"images": images, "annotations": captions})
    result = bench("data", "nocaps", own, nocaps, "--out", tmp_path / "both.json")
    assert isinstance(result.exception, BenchError)
    assert "more than 64 bits" in str(result.exception)
    assert not (tmp_path / "both.json").exists()


def test_boxes_beyond_all_floats_are_faults_of_their_image(tmp_path: Path) -> None:
    file = _write(tmp_path / "karpathy.json", _karpathy(boxes=[[0, 0, 10**400, 1]]))
    dataset = open_dataset(str(file), cache_dir=tmp_path)
    assert "boxes of 'a.png'" in dataset.faults[1]
    results = [{"image_id": 1, "bbox": [0, 0, 10**400, 1]}, {"image_id": 1, "bbox": [0, 0, 1, 1], "score": 10**400}]
    for entry in results:
        boxes = CocoBoxes(_write(tmp_path / "boxes.json", [entry]), dataset)
        [(image_id, found)] = boxes.read([1])
        assert image_id == 1
        assert "not a number" in str(found)


def test_sizes_beyond_all_images_are_not_believed(tmp_path: Path) -> None:
    assert told_size({"width": 10**400, "height": 480}) is None
    assert told_size({"width": 640, "height": 480}) == (640, 480)
    (tmp_path / "regions.tsv").write_bytes(b"9" * 5000 + b"\t1\t1\t1\n")
    with pytest.raises(BenchError, match="does not begin with an image id"):
        list(RegionTsv("regions", [tmp_path / "regions.tsv"]).read([1]))
