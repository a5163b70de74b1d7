"""Region features converted once: right, ragged, restarted after a kill, bounded in memory, open about damage."""

import json
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from harness.config.features import FeatureConfig, RegionConfig
from harness.data.backbones.opening import open_backbone
from harness.data.dataset import Dataset, Sample
from harness.data.feature_cache import extract_features
from harness.data.features import Features
from harness.data.regions.cache import MAPS_FORMAT, half_precision, locate_regions, prepare_regions
from harness.data.regions.features import META, RegionFeatures
from harness.measure.memory import PeakMemory
from harness.utils.errors import BenchError
from tests.harness.data.counting_backbone import Told, in_child, kill_self
from tests.harness.data.regions.conftest import sound_regions, tsv_line, write_folder
from zoo.captioner import VisualSpec

CHANNELS = 4
COUNTS = {3: 1, 10: 5, 7: 100, 8: 2}
BACKBONE = open_backbone(FeatureConfig(options={"grid": "2"}))
Make = Callable[..., Dataset]
Arrays = dict[int, tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]


def no_maps(bad: Mapping[int, str]) -> Features:
    raise AssertionError(f"files of features need no backbone {bad}")


def converted(dataset: Dataset, source: Path, cache: Path, **settings: Any) -> RegionFeatures:
    config = RegionConfig(source=source, **{key: settings.pop(key) for key in ("keep",) if key in settings})
    return prepare_regions(dataset, config, BACKBONE, no_maps, cache_dir=cache, **settings)


@pytest.fixture
def written() -> Arrays:
    return {image_id: sound_regions(image_id, count) for image_id, count in COUNTS.items()}


@pytest.fixture
def folder(tmp_path: Path, written: Arrays) -> Path:
    return write_folder(tmp_path / "bu", [(image_id, *arrays) for image_id, arrays in written.items()])


@pytest.fixture
def dataset(make_dataset: Make) -> Dataset:
    return make_dataset(COUNTS)


@pytest.fixture
def features(dataset: Dataset, folder: Path, tmp_path: Path) -> RegionFeatures:
    return converted(dataset, folder, tmp_path / "cache")


def test_batches_are_padded_to_their_longest(features: RegionFeatures, written: Arrays) -> None:
    seen = features.visual([10, 3], VisualSpec("regions", CHANNELS)).to("cpu")
    assert seen.features.shape == (2, 5, CHANNELS)
    assert seen.mask.tolist() == [[True] * 5, [True] + [False] * 4]
    assert torch.equal(seen.features[0], torch.from_numpy(written[10][0].astype(np.float16)).float())
    assert torch.equal(seen.features[1, :1], torch.from_numpy(written[3][0].astype(np.float16)).float())
    np.testing.assert_allclose(seen.boxes[0], written[10][1] / (40, 30, 40, 30), atol=1e-6)
    assert not seen.features[1, 1:].any()
    assert not seen.boxes[1, 1:].any()


def test_every_kind_sees_the_regions(features: RegionFeatures, written: Arrays) -> None:
    grid = features.visual([7], VisualSpec("grid", CHANNELS))
    assert grid.boxes is None
    assert grid.features.shape == (1, 100, CHANNELS)
    pooled = features.visual([3, 10], VisualSpec("pooled", CHANNELS))
    means = np.stack([written[image_id][0].astype(np.float16).mean(0, dtype=np.float32) for image_id in (3, 10)])
    np.testing.assert_allclose(pooled.features[:, 0], means, atol=1e-5)
    assert pooled.mask.all()
    assert not features.visual([3, 10], VisualSpec("none", 0)).features.any()
    with pytest.raises(BenchError, match="pixels"):
        features.visual([3], VisualSpec("pixels", 0))
    with pytest.raises(BenchError, match="expects 5 visual channels"):
        features.visual([3], VisualSpec("grid", 5))
    with pytest.raises(BenchError, match="image 4"):
        features.visual([4], VisualSpec("grid", CHANNELS))


def test_the_digest_is_of_the_content(dataset: Dataset, folder: Path, tmp_path: Path) -> None:
    before = converted(dataset, folder, tmp_path / "one").digest
    os.utime(folder / "3.npz", (1, 1))
    assert converted(dataset, folder, tmp_path / "one").digest == before
    assert len(list((tmp_path / "one" / "regions").iterdir())) == 2
    assert converted(dataset, folder, tmp_path / "one", keep="fixed:2").digest != before


def test_boxes_of_corrected_sizes_have_another_digest(make_dataset: Make, tmp_path: Path) -> None:
    dataset, found = make_dataset((1, 2), b1=((0.0, 0.0, 20.0, 15.0),)), set()
    for sizes in ({}, {1: (40, 30)}, {1: (80, 60)}):
        told = replace(dataset, sizes=sizes)
        found.add(json.dumps(locate_regions(told, RegionConfig(source="boxes"), BACKBONE, tmp_path, ())[1]))
    assert len(found) == 3


def test_other_code_converts_anew_the_same_input(
    make_dataset: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = make_dataset((1, 2), b1=((0.0, 0.0, 20.0, 15.0),))
    config = RegionConfig(source="boxes")
    _, inputs, folder = locate_regions(dataset, config, BACKBONE, tmp_path, ())
    monkeypatch.setattr("harness.data.regions.cache.MAPS_FORMAT", MAPS_FORMAT + 1)
    _, same_inputs, other_folder = locate_regions(dataset, config, BACKBONE, tmp_path, ())
    assert same_inputs == inputs
    assert other_folder != folder


def test_a_finished_conversion_is_used_again(dataset: Dataset, folder: Path, tmp_path: Path) -> None:
    told: list[int] = []
    converted(dataset, folder, tmp_path / "cache", reporter=Told(told.append))
    assert told == [1, 2, 3, 4]
    converted(dataset, folder, tmp_path / "cache", reporter=Told(told.append))
    assert len(told) == 4


def test_bad_images_are_kept_apart(dataset: Dataset, folder: Path, tmp_path: Path) -> None:
    (folder.with_name("bu_box") / "10.npy").unlink()
    features = converted(dataset, folder, tmp_path / "cache", skip=[8])
    assert list(features.bad) == [10]
    assert "box file" in features.bad[10]
    assert features.image_ids == (3, 7)


def test_a_repeated_image_with_other_contents_is_taken_back(dataset: Dataset, written: Arrays, tmp_path: Path) -> None:
    lines = [tsv_line(image_id, *arrays) for image_id, arrays in written.items()]
    path = tmp_path / "x.tsv"
    path.write_bytes(b"".join(lines) + tsv_line(3, *written[8]) + lines[1])
    features = converted(dataset, path, tmp_path / "cache")
    assert features.image_ids == (10, 7, 8)
    assert list(features.bad) == [3]
    np.testing.assert_array_equal(features.padded([8])[0][0], written[8][0].astype(np.float16))


def test_a_kill_at_any_moment_leaves_nothing_half_done(
    dataset: Dataset, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = converted(dataset, folder, tmp_path / "undisturbed").folder
    sync, killed = os.fsync, 0
    for moment in range(1, 6):
        cache = tmp_path / f"killed-{moment}"

        def work(last: int = moment, target: Path = cache) -> None:
            calls = iter(range(1, 100))
            monkeypatch.setattr(os, "fsync", lambda handle: kill_self() if next(calls) == last else sync(handle))
            converted(dataset, folder, target)

        killed += in_child(work) == -signal.SIGKILL
        features = converted(dataset, folder, cache)
        for file in wanted.iterdir():
            assert (features.folder / file.name).read_bytes() == file.read_bytes(), file.name
    assert killed == 4


def test_boxes_are_pooled_after_all_are_checked(
    make_dataset: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = make_dataset((1, 2, 3), b1=((0.0, 0.0, 40.0, 30.0), (0.0, 0.0, 20.0, 30.0)), b2=((9.0, 9.0, 90.0, 9.0),))
    told: list[dict[int, str]] = []

    def maps(bad: Mapping[int, str]) -> Features:
        told.append(dict(bad))
        return extract_features(dataset, BACKBONE, cache_dir=tmp_path / "cache")

    def prepared(**settings: Any) -> RegionFeatures:
        config = RegionConfig(source="boxes", **settings)
        return prepare_regions(dataset, config, BACKBONE, maps, cache_dir=tmp_path / "cache")

    features = prepared()
    assert [list(bad) for bad in told] == [[2]]
    assert features.image_ids == (1, 3)
    assert features.whole_images == 1
    assert features.describe() == (
        f"regions[boxes,all,roi1,filterbank-v1[grid=2]@24]#{features.digest[:8]},1-2,whole:1"
    )
    grid = maps({})
    np.testing.assert_allclose(features.padded([3])[0][0, 0], grid.pooled([3])[0], atol=2e-3)
    left = grid.grid_features([1])[0, [0, 2]].mean(axis=0, dtype=np.float32)
    np.testing.assert_allclose(features.padded([1])[0][0, 1], left, atol=2e-3)
    assert prepared(bins=2).dim == 4 * features.dim
    assert prepared(bins=2).digest != features.digest
    monkeypatch.setattr(torch, "__version__", "9.1.0")
    again = prepared()
    assert again.folder != features.folder, "pooled anew by another torch"
    assert again.digest == features.digest, "the signature is of what goes in"


@pytest.mark.parametrize("text", ["", "{}", '{"dim": 4}', "[1]"])
def test_a_damaged_description_is_found(features: RegionFeatures, text: str) -> None:
    (features.folder / META).write_text(text)
    with pytest.raises(BenchError, match="damaged"):
        RegionFeatures(features.folder)


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """Eight times the file, 6 and 48 MB: the peaks differ by less than the small file."""
    features = np.random.default_rng(0).normal(size=(36, 2048)).astype(np.float32)
    boxes = np.tile(np.array([[1, 1, 20, 20]], np.float32), (36, 1))
    rest = tsv_line(0, features, boxes).partition(b"\t")[2]
    peaks = []
    for images in (15, 16, 120):  # the first only loads what the others need
        path = tmp_path / f"{images}.tsv"
        with path.open("wb") as file:
            file.writelines(f"{number}\t".encode() + rest for number in range(images))
        samples = tuple(Sample(number, "", "train", ("a",)) for number in range(images))
        with PeakMemory() as peak:
            found = converted(Dataset("many", tmp_path, samples, path.name), path, tmp_path / "cache")
        if peak.host.value is None:
            pytest.skip(str(peak.host.reason))
        assert sum(found.counts(range(images))) == 36 * images
        peaks.append(peak.host.value)
    assert path.stat().st_size > 45e6
    assert peaks[2] - peaks[1] < 6


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_features_are_rounded_as_numpy_rounds(kind: type) -> None:
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float64)
    between = (halves[1:] + halves[:-1]) / 2
    exact = np.concatenate([halves, between, np.nextafter(between, 0), np.nextafter(between, 1e9)])
    with np.errstate(over="ignore"):
        features = exact.astype(kind)
        np.testing.assert_array_equal(half_precision(features), features.astype(np.float16))
