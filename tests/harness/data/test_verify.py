"""One folder with everything that goes wrong: all of it is found, named and handled."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from harness.data.dataset import Dataset, open_dataset
from harness.data.verify import find_bad_images
from harness.utils.errors import BenchError
from tests.harness.data.counting_backbone import Told

Make = Callable[..., Any]


def damaged_folder(entry: Make, folder: Make) -> Path:
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
    return root


EXPECTED = {
    0: "truncated.jpg cannot be decoded: .*truncated",
    1: "empty.jpg is an empty file",
    2: "missing.jpg is missing",
    20: "'silent.png' has no sentences",
    21: "'plain.jpg' is already the file of image 4",
    22: "'../outside.png' leads out",
    23: "'speechless-and-missing.png' has no sentences; speechless-and-missing.png is missing",
}


@pytest.fixture
def damaged(entry: Make, folder: Make, tmp_path: Path) -> Dataset:
    return open_dataset(str(damaged_folder(entry, folder)), cache_dir=tmp_path / "cache")


def test_all_bad_images_are_found_and_named(damaged: Dataset, tmp_path: Path) -> None:
    bad = find_bad_images(damaged, cache_dir=tmp_path / "cache", reporter=Told())
    assert list(bad) == list(EXPECTED)
    for image_id, pattern in EXPECTED.items():
        assert re.search(pattern, bad[image_id]), bad[image_id]


def test_the_answer_is_kept_for_the_fingerprint(
    damaged: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = find_bad_images(damaged, cache_dir=tmp_path)
    loads: list[Path] = []
    monkeypatch.setattr("harness.data.verify.load_image", loads.append)
    assert find_bad_images(damaged, cache_dir=tmp_path) == first
    assert list(find_bad_images(damaged, cache_dir=tmp_path)) == list(first)
    assert not loads
    find_bad_images(damaged, cache_dir=tmp_path, reuse=False)
    assert len(loads) == 7
    (damaged.root / "dot.png").unlink()
    changed = open_dataset(str(damaged.root.parent), cache_dir=tmp_path)
    find_bad_images(changed, cache_dir=tmp_path)
    assert len(loads) == 14


@pytest.mark.parametrize("content", ["", "[]", '{"a": 1}', "{"])
def test_a_damaged_answer_is_found_anew(damaged: Dataset, tmp_path: Path, content: str) -> None:
    first = find_bad_images(damaged, cache_dir=tmp_path / "fresh")
    (kept,) = (tmp_path / "fresh").iterdir()
    kept.write_text(content)
    assert find_bad_images(damaged, cache_dir=tmp_path / "fresh") == first


def test_wrong_folder_is_reported_once(entry: Make, folder: Make, tmp_path: Path) -> None:
    root = folder([entry(number, f"{number}.png") for number in range(3)], pictures=False)
    dataset = open_dataset(str(root), cache_dir=tmp_path)
    with pytest.raises(BenchError, match=r"none of the 3 images of tiny is in .*images: no 0\.png") as caught:
        find_bad_images(dataset, cache_dir=tmp_path)
    assert "--images DIR" in (caught.value.hint or "")
