"""Training and evaluation batches, in an order that depends only on seed and epoch."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harness.data.dataset import Sample
from harness.data.encoding import encode_captions
from harness.data.graphs import NumberedGraph
from harness.data.vocabulary import PAD, Vocabulary
from harness.utils.errors import BenchError
from zoo.captioner import Visual, VisualSpec

ABSENT = -1  # where a graph has fewer objects, attributes or relations than others of a batch
PREFETCHED = 3  # items: one being prepared, and two waiting
_END: Final[Any] = object()
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GraphTensors:
    """R graphs, padded with -1: objects (R, N), attributes (R, N, a) and relations (R, M, 3); N, a and M >= 1."""

    objects: Tensor
    attributes: Tensor
    relations: Tensor

    @classmethod
    def of(cls, graphs: Sequence[NumberedGraph]) -> GraphTensors:
        """Graphs padded to the largest of them."""
        longest = max((len(words) for graph in graphs for words in graph.attributes), default=0)
        return cls(
            padded([[(object_word,) for object_word in graph.objects] for graph in graphs], 1, least=1)[..., 0],
            padded([graph.attributes for graph in graphs], max(longest, 1), least=1),
            padded([graph.relations for graph in graphs], 3, least=1),
        )

    def each(self, change: Callable[[Tensor], Tensor]) -> GraphTensors:
        """Apply `change` to every tensor."""
        return replace(self, **{part.name: change(getattr(self, part.name)) for part in fields(self)})


def padded(rows: Sequence[Sequence[Sequence[int]]], width: int, least: int = 0) -> Tensor:
    """The rows of each image or graph in one tensor (B, N, width), padded with -1; N is at least `least`."""
    result = torch.full((len(rows), max(least, *map(len, rows), 0), width), ABSENT)
    for index, entries in enumerate(rows):
        for position, row in enumerate(entries):
            result[index, position, : len(row)] = torch.tensor(row)
    return result


@dataclass(frozen=True, slots=True)
class Batch:
    """B images with n captions each.

    Attributes:
        tokens: (B * n, T + 1) long, image-major: begin token, words, end token, padded to the longest of the batch.
        sentences: the scene graph of each row of tokens, in stages that learn from them; else None.
    """

    visual: Visual
    tokens: Tensor
    image_ids: tuple[int, ...]
    sentences: GraphTensors | None = None

    def to(self, device: torch.device) -> Batch:
        """The same batch on a device."""
        graphs = self.sentences and self.sentences.each(lambda part: part.to(device, non_blocking=True))
        tokens = self.tokens.to(device, non_blocking=True)
        return replace(self, visual=self.visual.to(device), tokens=tokens, sentences=graphs)

    def pinned(self) -> Batch:
        """The same batch in pinned memory, for asynchronous copies to a GPU; tensors on a GPU stay there."""
        parts = self.visual.parts().items()
        visual = Visual(**{name: part.pin_memory() if part.device.type == "cpu" else part for name, part in parts})
        graphs = self.sentences and self.sentences.each(torch.Tensor.pin_memory)
        return replace(self, visual=visual, tokens=self.tokens.pin_memory(), sentences=graphs)

    def split(self, parts: int) -> list[Batch]:
        """At most `parts` batches of about equally many images; one if `parts` is 1."""
        if parts == 1:
            return [self]
        images = len(self.image_ids)
        size = -(-images // parts)
        captions = len(self.tokens) // images

        def part(first: int) -> Batch:
            stop = first + size
            rows = slice(first * captions, stop * captions)
            graphs = self.sentences and self.sentences.each(lambda tensor: tensor[rows])
            return Batch(images_of(self.visual, first, stop), self.tokens[rows], self.image_ids[first:stop], graphs)

        return [part(first) for first in range(0, images, size)]


def images_of(visual: Visual, start: int, stop: int) -> Visual:
    """The visual input of a range of the images."""
    return Visual(**{name: part[start:stop] for name, part in visual.parts().items()})


class VisualSource(Protocol):
    """A source of visual input: cached features, or images."""

    def visual(self, image_ids: Sequence[int], spec: VisualSpec) -> Visual:
        """The visual input for this `spec`, in order, as it is stored (see `Visual.to`); called from threads."""


class CaptionBatches:
    """Batches of images with n of their captions, drawn anew each epoch.

    An epoch's order of images and choice of captions is a pure function of (seed, epoch), so that training resumes at
    any batch as if it had never stopped. All captions of an image are used before one is repeated. The last batch of an
    epoch may be smaller, unless `drop_last` leaves it out. The shares of processes together equal those of one.

    A row of tokens has at most `max_len`, begin and end token included. A `share` (k, n) is the k-th of n of every
    batch; that of a small batch may hold no image. Tokens are padded to the least of the `widths` that holds them, so
    that few shapes come. `graphs` are of each sample the scene graphs of its captions. With a `cache_dir` the captions
    are encoded once for all processes.
    """

    def __init__(
        self,
        samples: Sequence[Sample],
        vocabulary: Vocabulary,
        features: VisualSource,
        spec: VisualSpec,
        *,
        batch_size: int,
        captions_per_image: int,
        seed: int,
        max_len: int,
        drop_last: bool = False,
        share: tuple[int, int] = (0, 1),
        pinned: bool = False,
        widths: Sequence[int] = (),
        graphs: Sequence[Sequence[NumberedGraph]] | None = None,
        cache_dir: Path | None = None,
    ) -> None:
        if not samples:
            raise BenchError("no training image")
        if bare := [sample.file for sample in samples if not sample.captions]:
            raise BenchError(f"training images without a caption: {', '.join(bare[:5])}")
        self._ids = [sample.image_id for sample in samples]
        self._rows = encode_captions(samples, vocabulary, max_len, cache_dir)
        self._counts = np.array([len(sample.captions) for sample in samples])
        self._first_rows = (np.cumsum(self._counts) - self._counts).tolist()
        self._graphs = graphs
        self._features = features
        self._spec = spec
        self._pad = vocabulary.pad
        self._batch_size = batch_size
        self._per_image = captions_per_image
        self._seed = seed
        self._share = share
        self._pinned = pinned
        self._widths = widths
        self._used = len(self._ids) // batch_size * batch_size if drop_last else len(self._ids)
        if not self._used:
            raise BenchError(f"{len(self._ids)} training images do not fill a batch of {batch_size}")

    def __len__(self) -> int:
        """Number of batches per epoch."""
        return -(-self._used // self._batch_size)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The batches of an epoch from batch `start` on, prepared in the background."""
        return prefetched(self._batches(epoch, start))

    def _batches(self, epoch: int, start: int) -> Iterator[Batch]:
        order, choice = self._draw(epoch)
        shard, n_shards = self._share
        for first in range(start * self._batch_size, self._used, self._batch_size):
            images = order[first : first + self._batch_size][shard::n_shards]
            image_ids = tuple(self._ids[image] for image in images)
            rows = [self._rows[self._first_rows[image] + caption] for image in images for caption in choice[image]]
            if not images:
                yield Batch(Visual(), torch.zeros(0, 2, dtype=torch.long), ())
                continue
            tokens = pad_rows(rows, self._pad, least_width(max(map(len, rows)), self._widths))
            batch = Batch(self._features.visual(image_ids, self._spec), tokens, image_ids)
            if (sentence_graphs := self._graphs) is not None:
                graphs = [sentence_graphs[image][caption] for image in images for caption in choice[image]]
                batch = replace(batch, sentences=GraphTensors.of(graphs))
            yield batch.pinned() if self._pinned else batch.to(torch.device("cpu"))

    def _draw(self, epoch: int) -> tuple[list[int], list[list[int]]]:
        """The order of the images, and the n captions of each."""
        random = np.random.default_rng(np.random.SeedSequence([self._seed, epoch]))
        order = random.permutation(len(self._ids)).tolist()
        counts = self._counts
        draws = random.random((len(counts), counts.max()))
        draws[np.arange(counts.max()) >= counts[:, None]] = np.inf  # captions that do not exist come last
        ranked = draws.argsort(axis=1, kind="stable")
        ranks = np.arange(self._per_image) % counts[:, None]
        return order, np.take_along_axis(ranked, ranks, axis=1).tolist()


def evaluation_batches(
    image_ids: Sequence[int], features: VisualSource, spec: VisualSpec, batch_size: int
) -> Iterator[tuple[tuple[int, ...], Visual]]:
    """The images in the order given, with their visual input, prepared in the background."""

    def batches() -> Iterator[tuple[tuple[int, ...], Visual]]:
        for first in range(0, len(image_ids), batch_size):
            group = tuple(image_ids[first : first + batch_size])
            yield group, features.visual(group, spec)

    return prefetched(batches())


def few_widths(max_len: int) -> tuple[int, ...]:
    """Four widths up to the longest, for what is captured once a width."""
    return tuple(sorted({-(-max_len * quarter // 4) for quarter in range(1, 5)}))


def least_width(length: int, widths: Sequence[int]) -> int:
    """The least of the widths that holds so many words; the length itself where none does."""
    return min((width for width in widths if width >= length), default=length)


def pad_rows(rows: Sequence[Sequence[int] | NDArray[np.int32]], pad: int = PAD, width: int = 0) -> Tensor:
    """Token rows as one tensor (rows, longest), padded on the right to at least `width`."""
    padded = np.full((len(rows), max(width, *map(len, rows))), pad, dtype=np.int64)
    for line, row in zip(padded, rows, strict=True):
        line[: len(row)] = row
    return torch.from_numpy(padded)


def prefetched(source: Iterable[T]) -> Generator[T, None, None]:
    """Run an iterator in a thread, at most `PREFETCHED` items ahead.

    Order and items stay the same, exceptions are raised here, and the thread ends as this generator is done or closed.
    """
    items = iter(source)
    thread = ThreadPoolExecutor(1, "batch-prefetch")
    try:
        ahead = deque(thread.submit(next, items, _END) for _ in range(PREFETCHED))
        while (item := ahead.popleft().result()) is not _END:
            ahead.append(thread.submit(next, items, _END))
            yield item
    finally:
        thread.shutdown(cancel_futures=True)
