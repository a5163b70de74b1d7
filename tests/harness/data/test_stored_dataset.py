"""A data set that was read once opens from the cache as it was, and anew where anything of it has changed."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import harness.data.opening
from harness.data.dataset import Dataset
from harness.data.karpathy import read_karpathy
from harness.data.opening import open_dataset

Make = Callable[..., Any]


@pytest.fixture
def root(entry: Make, folder: Make) -> Path:
    """Images with everything that an annotation can have, one of them with a fault, and one without a file."""
    nested = entry(3, "c.jpg", "restval", filepath="val2014", width=640, height=480, boxes=[[0, 1, 2.5, 4]])
    sentences = [{"raw": "Ein Haus, größer.", "tokens": ["ein", "haus"]}, {"raw": "two\nlines", "tokens": []}]
    entries = [
        entry(7, "b.png", sentences=sentences),
        nested,
        entry(5, "d.png", "val", boxes=[]),
        entry(1, "e.png", "test"),
        entry(9, "f.png", "nocaps", domain="out-domain"),
        entry(11, "../g.png"),
        entry(13, "h.png"),
    ]
    made: Path = folder(entries)
    (made / "images" / "h.png").unlink()
    return made


class Reader:
    """Counts how often the annotations are read."""

    def __init__(self, root: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.cache, self.count = root, cache, 0
        monkeypatch.setattr(harness.data.opening, "read_karpathy", self._read)

    def _read(self, *words: Any, **options: Any) -> Dataset:
        self.count += 1
        return read_karpathy(*words, **options)

    def open(self) -> Dataset:
        return open_dataset(str(self.root), cache_dir=self.cache)


@pytest.fixture
def reader(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reader:
    (tmp_path / "cache").mkdir()
    return Reader(root, tmp_path / "cache", monkeypatch)


def test_it_is_read_once_and_equal_in_every_field(reader: Reader, root: Path) -> None:
    assert reader.open() == reader.open() == read_karpathy(root)
    assert reader.count == 1
    stored = reader.open()
    assert stored.samples[0].tokens == ("ein haus", "")
    assert stored.samples[1].boxes == ((0.0, 1.0, 2.5, 4.0),)
    assert stored.samples[2].boxes == ()
    assert list(stored.faults) == [11]
    assert set(stored.absent_files) == {"val2014/c.jpg", "h.png"}


def _other_caption(root: Path) -> None:
    file = root / "dataset_tiny.json"
    content = json.loads(file.read_text())
    content["images"][0]["sentences"][0]["raw"] = "another caption"
    file.write_text(json.dumps(content))


def _other_picture(root: Path) -> None:
    shutil.copy(root / "images" / "e.png", root / "images" / "b.png")
    with (root / "images" / "b.png").open("ab") as file:
        file.write(b"more")


def _touched_picture(root: Path) -> None:
    os.utime(root / "images" / "b.png", ns=(0, 0))


def _missing_picture(root: Path) -> None:
    (root / "images" / "b.png").unlink()


def _found_picture(root: Path) -> None:
    shutil.copy(root / "images" / "e.png", root / "images" / "h.png")


def _picture_in_its_own_folder(root: Path) -> None:
    (root / "images" / "val2014").mkdir()
    shutil.copy(root / "images" / "e.png", root / "images" / "val2014" / "c.jpg")


@pytest.mark.parametrize(
    "change",
    [
        _other_caption,
        _other_picture,
        _touched_picture,
        _missing_picture,
        _found_picture,
        _picture_in_its_own_folder,
    ],
)
def test_it_is_read_anew_after_a_change(reader: Reader, root: Path, change: Callable[[Path], None]) -> None:
    reader.open()
    change(root)
    assert reader.open() == read_karpathy(root)
    assert reader.count == 2
    reader.open()
    assert reader.count == 2


def test_a_moved_folder_is_another_data_set(reader: Reader, root: Path, tmp_path: Path) -> None:
    before = reader.open()
    reader.root = root.rename(tmp_path / "moved")
    after = reader.open()
    assert after == replace(before, root=after.root)
    assert after.root == tmp_path / "moved" / "images"


@pytest.mark.parametrize("size", [0, 100, -1])
def test_a_damaged_file_is_read_anew(reader: Reader, size: int) -> None:
    before = reader.open()
    (path,) = (reader.cache / "datasets").iterdir()
    content = bytearray(path.read_bytes())
    if size == -1:
        content[len(content) // 2] ^= 1
    path.write_bytes(content if size == -1 else content[:size])
    assert reader.open() == before


def test_a_cache_that_cannot_be_written_costs_no_data(reader: Reader) -> None:
    (reader.cache / "datasets").write_text("a file where the folder should be")
    assert reader.open() == reader.open()
    assert reader.count == 2


def test_without_a_cache_none_is_made(reader: Reader) -> None:
    reader.cache = reader.cache.parent / "workspace" / "cache"
    assert reader.open() == reader.open()
    assert not reader.cache.parent.exists()
