"""A backbone that counts what it is asked for, and the features that it gives."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from PIL import Image
from rich.console import Console
from torch import Tensor

from harness.data import feature_cache
from harness.data.dataset import Dataset, Sample
from harness.data.feature_cache import extract_features
from harness.data.features import ARRAY, META, Features
from harness.data.images import ImagePreprocessing
from harness.utils.progress import Reporter, Task

IMAGES = 21
BATCH = 2  # hence chunks of 8 images: two whole ones and one of 5
FORK = multiprocessing.get_context("fork")


class Told(Reporter):
    """Tells the counts of tasks, and what is noted, as they come."""

    def __init__(self, reach: Callable[[int], object] = lambda _: None, say: Callable[[str], object] = str) -> None:
        super().__init__(Console(quiet=True))
        self._reach, self._say = reach, say

    def note(self, text: str, style: str = "") -> None:  # noqa: ARG002
        self._say(text)

    @contextmanager
    def task(self, title: str, total: int, done: int = 0) -> Iterator[Task]:
        with (
            super().task(title, total, done) as task,
            patch.object(task, "reach", lambda done, _detail="": self._reach(done)),
        ):
            yield task


class CountingBackbone:
    """Mean colours of the four quarters, and a channel that gives away how many images the batch had."""

    name = "counting"
    dim = 4
    grid = (2, 2)
    digest = "c0de"
    preprocessing = ImagePreprocessing(4, interpolation="bilinear", mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))

    def __init__(self) -> None:
        self.batches: list[int] = []

    def describe(self) -> str:
        return "counting"

    def __call__(self, pixels: Tensor) -> Tensor:
        self.batches.append(len(pixels))
        quarters = torch.nn.functional.avg_pool2d(pixels, 2).flatten(2).transpose(1, 2)
        return torch.cat((quarters, torch.full((len(pixels), 4, 1), float(len(pixels)))), dim=2)


def noise_pictures(root: Path) -> Dataset:
    """Noise pictures with identifiers that are not their positions."""
    random = np.random.default_rng(0)
    root.mkdir()
    samples = []
    for number in range(IMAGES):
        Image.fromarray(random.integers(0, 256, (6, 5, 3), dtype=np.uint8)).save(root / f"{number}.png")
        samples.append(Sample(100 - number, f"{number}.png", "train", ("a picture",)))
    return Dataset("tiny", root, tuple(samples), "f1ea")


def extracted(dataset: Dataset, cache: Path, backbone: CountingBackbone | None = None, **settings: object) -> Features:
    with patch.object(feature_cache, "BATCH_SIZE", settings.pop("batch_size", BATCH)):
        return extract_features(dataset, backbone or CountingBackbone(), cache_dir=cache, **settings)  # type: ignore[arg-type]


def folder_of(cache: Path) -> Path:
    [folder] = (cache / "features").iterdir()
    return folder


def content(cache: Path) -> tuple[bytes, str]:
    folder = folder_of(cache)
    return (folder / ARRAY).read_bytes(), (folder / META).read_text()


def in_child(work: Callable[[], object]) -> int:
    """Exit code of the work in a process of its own; negative: killed by that signal."""
    child = FORK.Process(target=work)
    child.start()
    child.join(30)
    return child.exitcode


def kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
