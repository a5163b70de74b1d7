"""Small data sets in Karpathy's format, written for one test."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

Entry = dict[str, Any]


@pytest.fixture
def entry() -> Callable[..., Entry]:
    """Make an image's annotation; keyword arguments replace or add keys."""

    def make(imgid: int, filename: object, split: str = "train", **keys: object) -> Entry:
        sentences = [{"raw": f"Caption {number} of image {imgid}."} for number in range(2)]
        return {"imgid": imgid, "filename": filename, "split": split, "sentences": sentences, **keys}

    return make


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Path]:
    """Write dataset_tiny.json and a picture for each entry that names a plain file and does not exist yet."""

    def make(entries: list[Entry], *, pictures: bool = True) -> Path:
        root = tmp_path / "tiny"
        (root / "images").mkdir(parents=True, exist_ok=True)
        (root / "dataset_tiny.json").write_text(json.dumps({"dataset": "tiny", "images": entries}))
        for each in entries:
            name = each.get("filename")
            if (
                pictures
                and isinstance(name, str)
                and name
                and "/" not in name
                and not (root / "images" / name).exists()
            ):
                Image.new("RGB", (8, 6), (10 * each["imgid"] % 256, 80, 160)).save(root / "images" / name)
        return root

    return make
