"""The chunks of an extraction of features: batches of images that are computed together, here or in other processes."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import torch

from harness.data.backbones.backbone import Backbone
from harness.data.dataset import Dataset, Sample
from harness.data.features import Half, readers
from harness.data.images import BadImage
from harness.data.pixels import Pixels, as_visual, preparation, read_pixels, stack_pixels
from harness.utils.errors import BenchError
from harness.utils.precision import exact_products
from zoo.captioner import Visual

BATCHES_PER_CHUNK = 4
Chunk = tuple[int, int]
"""Image rows, from and to."""
Computed = tuple[int, Iterable[Half]]
"""The number of a chunk, and the features of its batches in order."""
Spread = Callable[["Chunks", Sequence[int]], Generator[Computed, None, None]]
"""Has other processes compute the chunks of these numbers; gives each as it is done, in any order."""


@dataclass(frozen=True)
class Chunks:
    """The images of an extraction; picklable. No batch crosses a chunk, so that any chunk can be computed alone."""

    dataset: Dataset
    samples: Sequence[Sample]
    backbone: Backbone
    batch_size: int
    device: str

    @property
    def rows(self) -> int:
        """Images of a whole chunk."""
        return BATCHES_PER_CHUNK * self.batch_size

    def places(self) -> list[Chunk]:
        """The rows of every chunk."""
        total = len(self.samples)
        return [(start, min(start + self.rows, total)) for start in range(0, total, self.rows)]

    def compute(self, wanted: Sequence[int]) -> Generator[Computed, None, None]:
        """Each chunk of these numbers in turn; its batches are computed as they are asked for, and all must be."""
        places = self.places()
        batches = [
            self.samples[first : min(first + self.batch_size, places[index][1])]
            for index in wanted
            for first in range(*places[index], self.batch_size)
        ]
        with contextlib.closing(self._pixels(batches)) as pixels:
            for index in wanted:
                yield index, (self._half(next(pixels)) for _ in range(*places[index], self.batch_size))

    def __call__(self, number: int) -> list[Half]:
        """The features of one chunk, in another process."""
        [(_, batches)] = ((found, list(computed)) for found, computed in self.compute([number]))
        return batches

    def close(self) -> None:
        """Nothing stays open between chunks."""

    def _half(self, images: Visual) -> Half:
        pixels = images.to(self.device).pixels
        assert pixels is not None, "read by `_pixels`"
        with exact_products():
            features = self.backbone(pixels).to(torch.float16)
        if not torch.isfinite(features).all():
            raise BenchError(f"backbone {self.backbone.name} gives features that are not finite in half precision")
        return features.cpu().numpy().astype("<f2", copy=False)

    def _pixels(self, batches: list[Sequence[Sample]]) -> Generator[Visual, None, None]:
        """Pixels (B, 3, H, W) batch by batch, read by threads at most two batches ahead of the backbone."""
        ahead: deque[list[Future[Pixels | BadImage]]] = deque()
        prepare, levels = preparation(self.backbone.preprocessing, torch.device(self.device))
        threads = readers()
        try:
            for turn in range(len(batches) + 2):
                if turn < len(batches):
                    paths = [self.dataset.path(sample) for sample in batches[turn]]
                    ahead.append([threads.submit(read_pixels, path, prepare) for path in paths])
                if turn >= 2:
                    yield as_visual(stack_pixels([future.result() for future in ahead.popleft()]), levels)
        finally:
            threads.shutdown(cancel_futures=True)
