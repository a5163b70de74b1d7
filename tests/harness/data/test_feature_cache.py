"""The feature cache: right, shared, bounded in memory, the same bytes after a kill; and what models see of it."""

import errno
import json
import os
import signal
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from harness.data import feature_cache, pixels
from harness.data import features as module
from harness.data.dataset import Dataset
from harness.data.features import ARRAY, META, Features
from harness.data.images import ImagePreprocessing, load_image
from harness.utils.errors import BenchError
from tests.harness.data.counting_backbone import (
    BATCH,
    FORK,
    IMAGES,
    CountingBackbone,
    Told,
    content,
    extracted,
    folder_of,
    in_child,
    kill_self,
    noise_pictures,
)
from zoo.captioner import VisualSpec


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return noise_pictures(tmp_path / "pictures")


def test_extraction_equals_direct_computation(dataset: Dataset, tmp_path: Path) -> None:
    features = extracted(dataset, tmp_path)
    backbone = CountingBackbone()
    assert features.image_ids == tuple(sample.image_id for sample in dataset.samples)
    for first in range(0, IMAGES, BATCH):
        group = dataset.samples[first : first + BATCH]
        pixels = torch.from_numpy(np.stack([backbone.preprocessing(load_image(dataset.path(each))) for each in group]))
        found = features.grid_features([each.image_id for each in group])
        assert np.array_equal(found, backbone(pixels).half().numpy())
    assert np.array_equal(np.load(folder_of(tmp_path) / ARRAY), features.grid_features(features.image_ids))


def test_reuse_does_no_work(dataset: Dataset, tmp_path: Path) -> None:
    first, second = CountingBackbone(), CountingBackbone()
    before = extracted(dataset, tmp_path, first)
    told: list[int] = []
    after = extracted(dataset, tmp_path, second, reporter=Told(told.append), batch_size=5)
    assert sum(first.batches) == IMAGES
    assert (second.batches, told) == ([], [])
    assert after.digest == before.digest


def test_what_determines_the_features_is_in_the_key(dataset: Dataset, tmp_path: Path) -> None:
    digests = {extracted(dataset, tmp_path).digest, extracted(dataset, tmp_path, skip={100, 95}).digest}
    digests.add(extracted(Dataset("tiny", dataset.root, dataset.samples, "0ther"), tmp_path).digest)
    for name, value in (("digest", "0dd"), ("preprocessing", ImagePreprocessing(4))):
        backbone = CountingBackbone()
        setattr(backbone, name, value)
        digests.add(extracted(dataset, tmp_path, backbone).digest)
    assert len(digests) == 5


def test_other_releases_of_timm_and_torch_extract_anew(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = []
    for torch_version, timm_version in (
        ("9.1.0", "1.0.1"),
        ("9.1.2+cu1", "1.0.1"),
        ("9.2.0", "1.0.1"),
        ("9.1.0", "1.0.2"),
    ):
        monkeypatch.setattr(torch, "__version__", torch_version)
        monkeypatch.setattr(feature_cache.metadata, "version", lambda _, version=timm_version: version)
        extracted(dataset, tmp_path, backbone := CountingBackbone())
        counts.append(sum(backbone.batches))
    assert counts == [IMAGES, 0, IMAGES, IMAGES], "a bug-fix release of torch keeps them"


def test_images_are_read_at_most_two_batches_ahead(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is bounded by three batches of pixels, whatever the size of the data set."""
    lock, read, most = threading.Lock(), 0, 0
    backbone = CountingBackbone()

    def counted(path: Path) -> Image.Image:
        nonlocal read, most
        with lock:
            read += 1
            most = max(most, read - sum(backbone.batches))
        return load_image(path)

    monkeypatch.setattr(pixels, "load_image", counted)
    extracted(dataset, tmp_path, backbone)
    assert read == IMAGES
    assert most <= 3 * BATCH


def test_bad_images_are_named_together(dataset: Dataset, tmp_path: Path) -> None:
    (dataset.root / "6.png").write_text("no picture")
    (dataset.root / "7.png").unlink()
    with pytest.raises(BenchError, match=r"6\.png .*7\.png") as caught:
        extracted(dataset, tmp_path)
    assert "--skip-bad-images" in (caught.value.hint or "")
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("reader")]


def test_a_full_disk_is_a_message_before_and_during_the_work(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(feature_cache.os, "fsync", full)
        with pytest.raises(BenchError, match="disk is full"):
            extracted(dataset, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(feature_cache.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 10}))
        with pytest.raises(BenchError, match=r"disk is full.*are needed"):
            extracted(dataset, tmp_path)
    extracted(dataset, tmp_path)


def test_a_gpu_multiplies_exactly_while_it_extracts(dataset: Dataset, tmp_path: Path) -> None:
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before, seen = (matmul.allow_tf32, cudnn.allow_tf32), []

    class Seeing(CountingBackbone):
        def __call__(self, pixels: Tensor) -> Tensor:
            seen.append((matmul.allow_tf32, cudnn.allow_tf32))
            return super().__call__(pixels)

    matmul.allow_tf32 = cudnn.allow_tf32 = True
    try:
        extracted(dataset, tmp_path, Seeing())
        after = matmul.allow_tf32, cudnn.allow_tf32
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before
    assert set(seen) == {(False, False)}
    assert after == (True, True)


def test_values_beyond_half_precision_are_refused(dataset: Dataset, tmp_path: Path) -> None:
    class Loud(CountingBackbone):
        def __call__(self, pixels: Tensor) -> Tensor:
            return super().__call__(pixels) * 1e5

    with pytest.raises(BenchError, match="not finite in half precision"):
        extracted(dataset, tmp_path, Loud())


def test_a_kill_at_any_write_changes_nothing(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process dies at its first, second, ... write to the disk; the next one goes on to the same bytes."""
    extracted(dataset, tmp_path / "undisturbed")
    wanted = content(tmp_path / "undisturbed")
    real_sync, kills = os.fsync, 0
    for after in (False, True):
        for moment in range(1, 20):
            cache = tmp_path / f"{after}-{moment}"

            def die(last: int = moment, late: bool = after, target: Path = cache) -> None:
                calls = iter(range(1, 100))

                def sync(handle: int) -> None:
                    here = next(calls) == last
                    if here and not late:
                        kill_self()
                    real_sync(handle)
                    if here:
                        kill_self()

                monkeypatch.setattr(os, "fsync", sync)
                extracted(dataset, target)

            if in_child(die) == 0:
                break
            kills += 1
            extracted(dataset, cache, CountingBackbone())
            assert content(cache) == wanted
    assert kills == 2 * 9  # the empty array, the plan, three chunks and their log lines, the final marker


@pytest.mark.parametrize("images", [1, 9, 20])
def test_a_resumed_extraction_keeps_whole_chunks(dataset: Dataset, tmp_path: Path, images: int) -> None:
    def die(done: int) -> None:
        if done >= images:
            kill_self()

    assert in_child(lambda: extracted(dataset, tmp_path, reporter=Told(die))) == -signal.SIGKILL
    with (folder_of(tmp_path) / "chunks.log").open("a") as log:
        log.write("2")  # the kill tore the next line
    backbone = CountingBackbone()
    told: list[int] = []
    extracted(dataset, tmp_path, backbone, reporter=Told(told.append))
    kept = images // 8 * 8
    assert told[0] == kept
    assert sum(backbone.batches) == IMAGES - kept


def test_an_unfinished_array_of_other_batches_is_not_continued(dataset: Dataset, tmp_path: Path) -> None:
    def die(done: int) -> None:
        if done >= 10:
            kill_self()

    in_child(lambda: extracted(dataset, tmp_path / "a", reporter=Told(die)))
    extracted(dataset, tmp_path / "a", batch_size=3)
    extracted(dataset, tmp_path / "b", batch_size=3)
    assert content(tmp_path / "a") == content(tmp_path / "b")


def test_a_second_process_waits_says_so_and_reuses(dataset: Dataset, tmp_path: Path) -> None:
    started, waiting = FORK.Event(), FORK.Event()

    def first() -> None:
        def progress(done: int) -> None:
            if done == 0:
                started.set()
                assert waiting.wait(20)

        extracted(dataset, tmp_path, reporter=Told(progress))

    child = FORK.Process(target=first)
    child.start()
    assert started.wait(20)
    said: list[str] = []

    def notify(sentence: str) -> None:
        said.append(sentence)
        waiting.set()

    backbone = CountingBackbone()
    extracted(dataset, tmp_path, backbone, reporter=Told(say=notify))
    child.join(20)
    assert (child.exitcode, backbone.batches) == (0, [])
    assert len(said) == 1
    assert "waiting" in said[0]


IDS = (7, 3, 11, 5, 2)
GRID = (2, 3)
DIM = 4


@pytest.fixture
def array() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(5, 6, DIM)).astype(np.float16)


@pytest.fixture
def folder(tmp_path: Path, array: np.ndarray) -> Path:
    """A finished cache folder of five images."""
    np.save(tmp_path / ARRAY, array)
    meta = {"key": "abc", "shape": array.shape, "grid": GRID, "image_ids": IDS}
    (tmp_path / META).write_text(json.dumps(meta))
    return tmp_path


@pytest.fixture
def features(folder: Path) -> Features:
    return Features(folder)


def test_cell_boxes_cover_the_image_in_reading_order(features: Features) -> None:
    boxes = features.cell_boxes()
    assert np.allclose(boxes[0], [0, 0, 1 / 3, 1 / 2])
    assert np.allclose(boxes[1], [1 / 3, 0, 2 / 3, 1 / 2])
    assert np.allclose(boxes[-1], [2 / 3, 1 / 2, 1, 1])
    assert np.isclose(((boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])).sum(), 1)
    assert len({tuple(box) for box in boxes.tolist()}) == 6


def test_every_kind_of_visual(features: Features, array: np.ndarray) -> None:
    stored = torch.from_numpy(array[[2, 0]])
    wanted = stored.float()
    grid = features.visual([11, 7], VisualSpec("grid", DIM))
    assert torch.equal(grid.features, stored)
    assert grid.boxes is None
    regions = features.visual([11, 7], VisualSpec("regions", DIM))
    assert regions.boxes.shape == (2, 6, 4)
    pooled = features.visual([11, 7], VisualSpec("pooled", DIM))
    assert torch.allclose(pooled.features, wanted.mean(dim=1, keepdim=True), atol=1e-6)
    blind = features.visual([11, 7], VisualSpec("none", 0))
    assert torch.equal(blind.features, torch.zeros(2, 1, 1))
    for visual in (grid, regions, pooled, blind):
        assert visual.to("cpu").features.dtype == torch.float32  # type: ignore[union-attr]
        assert visual.mask.shape == visual.features.shape[:2]
        assert visual.mask.all()


def test_much_is_read_by_several_threads(
    features: Features, array: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MUCH", 1)
    np.testing.assert_array_equal(features.grid_features([5, 7, 5]), array[[3, 0, 3]])


def test_damage_is_found(folder: Path) -> None:
    (folder / ARRAY).write_bytes((folder / ARRAY).read_bytes()[:-1])
    with pytest.raises(BenchError, match="damaged") as caught:
        Features(folder)
    assert "rm -r" in (caught.value.hint or "")
    (folder / ARRAY).unlink()
    with pytest.raises(BenchError, match="damaged"):
        Features(folder)
