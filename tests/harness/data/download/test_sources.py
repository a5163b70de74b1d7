"""The addresses that ship, and mirrors of them."""

from __future__ import annotations

import pytest

from harness.data.download.sources import load_sources
from harness.utils.errors import BenchError


def test_shipped_sources_are_whole() -> None:
    sources = load_sources()
    coco = sources["coco"]
    assert coco.annotations.splits is not None
    assert sum(coco.annotations.splits.values()) == sum(archive.pictures for archive in coco.archives) == 123_287
    assert coco.annotations.splits["train"] + coco.annotations.splits["restval"] == 113_287
    assert all(archive.sha256 and archive.bytes for archive in coco.archives)
    assert [archive.folder for archive in coco.archives] == ["train2014", "val2014"]
    assert [name for name, source in sources.items() if source.form] == ["flickr8k", "flickr30k"]
    assert sources["nocaps"].annotations.images == 4500


def test_a_mirror_has_the_same_files_under_their_names() -> None:
    coco = load_sources()["coco"]
    mirrored = coco.mirrored("https://example.org/mine/")
    assert mirrored.annotations.url == "https://example.org/mine/caption_datasets.zip"
    assert mirrored.archives[0].url == "https://example.org/mine/train2014.zip"
    assert mirrored.archives[0].sha256 == coco.archives[0].sha256
    with pytest.raises(BenchError, match="--mirror ftp://x is no http address"):
        coco.mirrored("ftp://x")
