"""Features by actors of a cluster: the same bytes as one process makes, chunk by chunk."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from harness.benchmark.engines.interface import Resources
from harness.benchmark.engines.ray import RayEngine
from harness.data.dataset import Dataset
from harness.utils.errors import BenchError
from tests.harness.benchmark.engines.fake_ray import FakeRay
from tests.harness.benchmark.small_runs import quiet
from tests.harness.conftest import DrawScenes, bench_or_raise, run_words
from tests.harness.data.counting_backbone import (
    IMAGES,
    CountingBackbone,
    content,
    extracted,
    folder_of,
    noise_pictures,
)

CPU = torch.device("cpu")


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[RayEngine]:
    """Actors of this process, each with one thread."""
    monkeypatch.setitem(sys.modules, "ray", FakeRay())  # type: ignore[arg-type]
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    made, threads = RayEngine(None, Resources(), 0), torch.get_num_threads()
    made.join()
    yield made
    made.close()
    torch.set_num_threads(threads)


def test_actors_extract_the_same_bytes(engine: RayEngine, tmp_path: Path) -> None:
    dataset, told = noise_pictures(tmp_path / "pictures"), []
    extracted(dataset, tmp_path / "here")
    backbone = CountingBackbone()
    spread = engine.extraction(CPU, quiet())
    extracted(dataset, tmp_path / "there", backbone, spread=spread, progress=lambda *at: told.append(at))
    assert content(tmp_path / "there") == content(tmp_path / "here")
    assert backbone.batches == [], "this process computes nothing"
    assert (told[0], told[-1]) == ((0, IMAGES), (IMAGES, IMAGES))
    assert sorted(path.name for path in folder_of(tmp_path / "there").iterdir()) == sorted(
        path.name for path in folder_of(tmp_path / "here").iterdir()
    )


def test_a_chunk_that_fails_ends_the_extraction_and_the_others_are_kept(engine: RayEngine, tmp_path: Path) -> None:
    dataset: Dataset = noise_pictures(tmp_path / "pictures")
    extracted(dataset, tmp_path / "here")
    picture = tmp_path / "pictures" / "9.png"  # in the second of three chunks
    whole = picture.read_bytes()
    picture.write_bytes(b"")
    with pytest.raises(BenchError, match=r"features, part 2 cannot be extracted: .*9\.png") as failed:
        extracted(dataset, tmp_path / "there", spread=engine.extraction(CPU, quiet()))
    assert "--on here" in str(failed.value.hint)
    picture.write_bytes(whole)
    backbone = CountingBackbone()
    extracted(dataset, tmp_path / "there", backbone)
    assert 5 <= sum(backbone.batches) <= IMAGES - 8, "the first chunk is kept"
    assert content(tmp_path / "there") == content(tmp_path / "here")


def test_a_command_has_its_features_from_the_cluster(
    engine: RayEngine, draw_scenes: DrawScenes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del engine
    computed: list[str] = []
    from harness.benchmark.engines import parts, ray

    def in_parts(*arguments: object) -> object:
        computed.append("there")
        return parts.in_parts(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(ray, "in_parts", in_parts)
    words = run_words(draw_scenes(train=24, val=4, test=6), tmp_path, "retrieval", {})
    code, said = bench_or_raise(*words, "--backbone", "filterbank", "--on", "ray")
    assert code == 0, said
    assert computed == ["there"]
    assert "1 finished" in said
