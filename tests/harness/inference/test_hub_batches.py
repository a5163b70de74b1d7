"""How many images a checkpoint of the hub captions at once: by free memory, fewer where it runs out, same captions."""

from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from PIL import Image

from harness.config.preset import Decoding
from harness.data.dataset import Dataset, Sample
from harness.inference.hub_captioner import HubCaptioner, caption_with_hub
from harness.measure.memory import LiveTensors, free_memory
from harness.utils.errors import BenchError
from harness.utils.progress import Reporter

MIB = 2**20


class Stub:
    """Says how bright a picture is, with a MiB for each, and has room for so many at once."""

    device = torch.device("cpu")

    def __init__(self, room: int) -> None:
        self.room = room
        self.sizes: list[int] = []

    def caption(self, images: list[Image.Image], _: Decoding) -> tuple[list[str], list[int]]:
        self.sizes.append(len(images))
        if len(images) > self.room:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes.")
        pixels = torch.zeros(len(images), MIB, dtype=torch.uint8)
        return [str(np.asarray(image).mean()) for image in images], [len(pixels[:1])] * len(images)


@pytest.fixture
def pictures(tmp_path: Path) -> Dataset:
    for number in range(40):
        Image.new("RGB", (4, 4), (number, number, number)).save(tmp_path / f"{number}.png")
    samples = tuple(Sample(number, f"{number}.png", "test", ("a",)) for number in range(40))
    return Dataset("drawn", tmp_path, samples, "print")


def captioned(stub: Stub, pictures: Dataset, jobs: int = 1, batch: int | None = None) -> dict[int, str]:
    reporter, ids = Reporter(), [sample.image_id for sample in pictures.samples]
    captioner = cast("HubCaptioner", stub)
    return caption_with_hub(
        captioner, pictures, ids, Decoding(), reporter=reporter, title="", jobs=jobs, batch=batch
    ).by_image


EXPECTED = {number: str(float(number)) for number in range(40)}


@pytest.mark.parametrize(
    ("free", "jobs", "sizes"),
    [(None, 1, [16, 16, 8]), (10**12, 1, [1, 16, 16, 8]), (17 * MIB, 1, [1, *[8] * 5]), (17 * MIB, 2, [1, *[4] * 10])],
)
def test_a_batch_is_as_large_as_half_of_the_free_memory_allows(
    free: int | None, jobs: int, sizes: list[int], pictures: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.inference.hub_captioner.free_memory", lambda _: free)
    stub = Stub(room=40)
    assert captioned(stub, pictures, jobs) == EXPECTED
    assert stub.sizes == sizes


def test_where_memory_runs_out_half_as_many_are_tried(pictures: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.inference.hub_captioner.free_memory", lambda _: None)
    stub = Stub(room=5)
    assert captioned(stub, pictures) == EXPECTED
    assert stub.sizes == [16, 8, *[4] * 10]
    with pytest.raises(BenchError, match="a single image at a time") as caught:
        captioned(Stub(room=0), pictures)
    assert "--hub dtype=bf16" in (caught.value.hint or "")


def test_a_batch_that_was_asked_for_is_taken_as_far_as_memory_has_room(pictures: Dataset) -> None:
    for room, batch, sizes in ((40, 30, [30, 10]), (40, 3, [*[3] * 13, 1]), (16, 30, [30, 15, 15, 10])):
        stub = Stub(room)
        assert captioned(stub, pictures, batch=batch) == EXPECTED
        assert stub.sizes == sizes


def test_live_tensors_are_counted_once_and_until_they_are_freed() -> None:
    given = torch.ones(100)
    with LiveTensors() as live:
        kept = torch.zeros(1000)
        seen = kept.view(10, 100) + given  # 4,000 bytes more; views and what was there before cost nothing
        for _ in range(3):
            given.t().mul(2.0)
        given.add_(1.0)
        del seen
        torch.zeros(10)
    assert live.peak == 8400


def test_free_memory_is_what_the_system_and_its_control_groups_leave(tmp_path: Path) -> None:
    def write(name: str, text: object) -> None:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n", encoding="utf-8")

    cpu = torch.device("cpu")
    assert free_memory(cpu, tmp_path) is None
    write("proc/meminfo", "MemTotal: 20 kB\nMemAvailable:   10 kB")
    assert free_memory(cpu, tmp_path) == 10_240
    write("proc/self/cgroup", "4:memory:/a/b\n0::/job/step")
    write("sys/fs/cgroup/job/memory.max", 9000)
    write("sys/fs/cgroup/job/memory.current", 4000)
    write("sys/fs/cgroup/job/step/memory.max", "max")
    write("sys/fs/cgroup/job/step/memory.current", 4000)
    assert free_memory(cpu, tmp_path) == 5000
    write("sys/fs/cgroup/job/memory.stat", "anon 7\ninactive_file 1500")
    assert free_memory(cpu, tmp_path) == 6500
    write("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", 3000)
    write("sys/fs/cgroup/memory/a/b/memory.usage_in_bytes", 1000)
    assert free_memory(cpu, tmp_path) == 2000
