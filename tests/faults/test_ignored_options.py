"""Options that would have no effect are refused, not ignored."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.utils.errors import BenchError
from tests.harness.conftest import bench


@pytest.mark.parametrize(
    ("words", "said", "hint"),
    [
        ("flops --models blind --backbone resnet18", "--backbone is about the backbone", "add --with-backbone"),
        ("flops --models blind --image-size 224", "--image-size is about the backbone", "add --with-backbone"),
        ("flops --preset expansionnet-table-vi --backbone resnet18", "published table", "leave out all"),
        ("plan --detect 1 --seeds 3 --models blind", "--models, --seeds: not used by --detect", "leave --detect or"),
        (
            "export submission predictions.json --server coco --images coco.json --out up --workspace w",
            "--workspace: predictions.json is a file",
            "leave these out",
        ),
        ("plan --data coco --regions no-folder", "--regions: not read", "--cells and --channels"),
        ("plan --data coco --backbone resnet18 --graphs x", "--backbone, --graphs: not read", "--data FOLDER"),
        ("plan --region-count first:3", "--region-count and --region-bins need --regions", "add --regions"),
        ("caption a.png --run key --split val", "--split: read with --data alone", "give --data"),
        ("caption a.png --run key --images .", "--images: read with --data alone", "give --data"),
        ("run --clip org/name", "--clip: read by --more-metrics alone", "add --more-metrics"),
        ("run --data nowhere", "there is no data set at nowhere", "give scenes"),
        ("tune --data nowhere", "there is no data set at nowhere", "give scenes"),
        ("run --data .", "holds no dataset*.json", "name the annotation file"),
        ("evaluate predictions.json --references coco.json --split val", "names no splits", "leave --split out"),
    ],
)
def test_an_option_without_effect_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: str, said: str, hint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    coco = {"images": [{"id": 1}], "annotations": [{"image_id": 1, "caption": "a red ball"}]}
    (tmp_path / "coco.json").write_text(json.dumps(coco))
    (tmp_path / "predictions.json").write_text(json.dumps([{"image_id": 1, "caption": "a red ball"}]))
    error = bench(*words.split()).exception
    assert isinstance(error, BenchError)
    assert said in str(error)
    assert hint in (error.hint or "")
