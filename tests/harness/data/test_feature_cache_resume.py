"""The feature cache after a kill at any moment, and while another process fills it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from harness.data import feature_cache
from harness.data.dataset import Dataset
from harness.data.features import ARRAY, META
from tests.harness.data.counting_backbone import (
    FORK,
    IMAGES,
    CountingBackbone,
    content,
    extracted,
    folder_of,
    in_child,
    kill_self,
    noise_pictures,
)


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return noise_pictures(tmp_path / "pictures")


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
            backbone = CountingBackbone()
            extracted(dataset, cache, backbone)
            assert content(cache) == wanted
    assert kills == 2 * 9  # the empty array, the plan, three chunks and their log lines, the final marker


@pytest.mark.parametrize("images", [1, 9, 20])
def test_a_resumed_extraction_keeps_whole_chunks(dataset: Dataset, tmp_path: Path, images: int) -> None:
    def die(done: int, _total: int) -> None:
        if done >= images:
            kill_self()

    assert in_child(lambda: extracted(dataset, tmp_path, progress=die)) == -signal.SIGKILL
    backbone = CountingBackbone()
    told: list[tuple[int, int]] = []
    extracted(dataset, tmp_path, backbone, progress=lambda *at: told.append(at))
    kept = images // 8 * 8
    assert told[0] == (kept, IMAGES)
    assert sum(backbone.batches) == IMAGES - kept


def test_a_kill_between_the_renames_loses_nothing(dataset: Dataset, tmp_path: Path) -> None:
    def die() -> None:
        feature_cache.write_text = lambda path, text: kill_self() if path.name == META else path.write_text(text)  # type: ignore[assignment,func-returns-value,return-value]
        extracted(dataset, tmp_path)

    assert in_child(die) == -signal.SIGKILL
    assert (folder_of(tmp_path) / ARRAY).exists()
    backbone = CountingBackbone()
    extracted(dataset, tmp_path, backbone).verify()
    assert backbone.batches == []


def test_damage_to_an_unfinished_array_is_computed_again(dataset: Dataset, tmp_path: Path) -> None:
    def die(done: int, _total: int) -> None:
        if done >= IMAGES:
            kill_self()

    in_child(lambda: extracted(dataset, tmp_path, progress=die))
    partial = folder_of(tmp_path) / f"{ARRAY}.partial"
    raw = bytearray(partial.read_bytes())
    raw[140] ^= 1  # in the first chunk
    partial.write_bytes(raw)
    with (folder_of(tmp_path) / "chunks.log").open("a") as log:
        log.write("2 torn")
    backbone = CountingBackbone()
    extracted(dataset, tmp_path, backbone).verify()
    assert sum(backbone.batches) == 8 + 5


def test_an_unfinished_array_of_other_batches_is_not_continued(dataset: Dataset, tmp_path: Path) -> None:
    def die(done: int, _total: int) -> None:
        if done >= 10:
            kill_self()

    in_child(lambda: extracted(dataset, tmp_path / "a", progress=die))
    extracted(dataset, tmp_path / "a", batch_size=3)
    extracted(dataset, tmp_path / "b", batch_size=3)
    assert content(tmp_path / "a") == content(tmp_path / "b")


def test_a_second_process_waits_says_so_and_reuses(dataset: Dataset, tmp_path: Path) -> None:
    started, waiting = FORK.Event(), FORK.Event()

    def first() -> None:
        def progress(done: int, _total: int) -> None:
            if done == 0:
                started.set()
                assert waiting.wait(20)

        extracted(dataset, tmp_path, progress=progress)

    child = FORK.Process(target=first)
    child.start()
    assert started.wait(20)
    said: list[str] = []

    def notify(sentence: str) -> None:
        said.append(sentence)
        waiting.set()

    backbone = CountingBackbone()
    features = extracted(dataset, tmp_path, backbone, notify=notify)
    child.join(20)
    assert child.exitcode == 0
    assert backbone.batches == []
    assert len(said) == 1
    assert "waiting" in said[0]
    features.verify()
