"""Cache of a frozen backbone's features on disk: resumable, and shared between processes.

A cache folder `features/<key>/` holds `plan.json` (settings of an unfinished extraction), `chunks.log` (the
number of every chunk that is on the disk, a line each), `lock`, and in the end `features.npy` and `meta.json`, whose
existence marks the array as complete. Batches never cross a chunk, so an extraction that is killed and resumed computes
the same batches, hence the same bytes, as an uninterrupted one.
"""

import errno
import hashlib
import json
import math
import os
import shutil
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path

import torch

from harness.data.backbones.backbone import Backbone, TrainableBackbone
from harness.data.dataset import Dataset, Sample
from harness.data.features import ARRAY, META, Features, Half, array_header, readers
from harness.data.images import BadImage
from harness.data.pixels import Pixels, preparation, read_pixels, stack_pixels
from harness.utils.atomic import write_text
from harness.utils.errors import BenchError
from harness.utils.precision import exact_products
from harness.utils.progress import Reporter, silent
from harness.utils.workspace import locked
from zoo.captioner import Visual

FORMAT = 2
BATCH_SIZE = 32
BATCHES_PER_CHUNK = 4
Computed = tuple[int, Iterable[Half]]
Spread = Callable[["Chunks", Sequence[int]], Generator[Computed, None, None]]
"""Computes the chunks with these indices in several processes, and yields each when it is done, in any order."""


@dataclass(frozen=True)
class Chunks:
    """The images of an extraction, in chunks that can be computed independently; picklable."""

    dataset: Dataset
    samples: Sequence[Sample]
    backbone: Backbone
    batch_size: int
    device: str

    @property
    def shape(self) -> tuple[int, int, int]:
        """Images, cells, channels."""
        return len(self.samples), math.prod(self.backbone.grid), self.backbone.dim

    def places(self) -> list[tuple[int, int]]:
        """The range of images of every chunk, (start, stop)."""
        total = len(self.samples)
        rows = BATCHES_PER_CHUNK * self.batch_size
        return [(start, min(start + rows, total)) for start in range(0, total, rows)]

    def compute(self, indices: Sequence[int]) -> Generator[Computed, None, None]:
        """Each of these chunks, with an iterator over its batches, which must be exhausted before the next chunk."""
        places = self.places()
        batches = []
        for index in indices:
            start, stop = places[index]
            for first in range(start, stop, self.batch_size):
                batches.append(self.samples[first : min(first + self.batch_size, stop)])
        with closing(self._pixels(batches)) as pixels:
            for index in indices:
                yield index, (self._half(next(pixels)) for _ in range(*places[index], self.batch_size))

    def __call__(self, index: int) -> list[Half]:
        """The features of one chunk, batch by batch."""
        [(_, batches)] = ((chunk, list(computed)) for chunk, computed in self.compute([index]))
        return batches

    def _half(self, images: Visual) -> Half:
        pixels = images.to(self.device).pixels
        assert pixels is not None, "read by `_pixels`"
        with exact_products():
            features = self.backbone(pixels).to(torch.float16)
        if not torch.isfinite(features).all():
            raise BenchError(f"backbone {self.backbone.name} returns features that are not finite in half precision")
        return features.cpu().numpy().astype("<f2", copy=False)

    def _pixels(self, batches: list[Sequence[Sample]]) -> Generator[Visual, None, None]:
        """Pixels (B, 3, H, W) batch by batch, read by threads at most two batches ahead of the backbone."""
        ahead: deque[list[Future[Pixels | BadImage]]] = deque()
        prepare, levels = preparation(self.backbone.preprocessing, torch.device(self.device))
        threads = readers()
        try:
            for index in range(len(batches) + 2):
                if index < len(batches):
                    paths = [self.dataset.path(sample) for sample in batches[index]]
                    ahead.append([threads.submit(read_pixels, path, prepare) for path in paths])
                if index >= 2:
                    yield stack_pixels([future.result() for future in ahead.popleft()], levels)
        finally:
            threads.shutdown(cancel_futures=True)


def extract_features(
    dataset: Dataset,
    backbone: Backbone,
    *,
    cache_dir: Path,
    skip: Collection[int] = (),
    device: str = "cpu",
    reporter: Reporter | None = None,
    spread: Spread | None = None,
) -> Features:
    """Features of all images of a data set except those in `skip`, from the cache if it has them.

    BenchError for an image that cannot be read, a full disk, features beyond half precision, and a damaged cache.
    """
    samples = [sample for sample in dataset.samples if sample.image_id not in skip]
    if not samples:
        raise BenchError(f"data set {dataset.name} has no image to extract features from")
    folder = features_folder(dataset, backbone, cache_dir, skip)
    chunks = Chunks(dataset, samples, backbone, BATCH_SIZE, device)
    compute = chunks.compute if spread is None else partial(spread, chunks)
    reporter = reporter or silent()

    def extract() -> None:
        with reporter.task(f"features ({backbone.name})", len(samples)) as task:
            _extract(chunks, folder, _key(dataset, backbone, skip), compute, task.reach)

    make_once(folder, extract, "features", reporter)
    return Features(folder)


def features_folder(dataset: Dataset, backbone: Backbone, cache_dir: Path, skip: Collection[int]) -> Path:
    """The cache folder for the features of all images except those in `skip`."""
    return cache_dir / "features" / _key(dataset, backbone, skip)[:24]


def _key(dataset: Dataset, backbone: Backbone, skip: Collection[int]) -> str:
    """Hex digest of everything that determines the features."""
    parts = [FORMAT, backbone.digest, backbone.preprocessing.key(), dataset.fingerprint, sorted(skip), computed_by()]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def computed_by() -> list[str]:
    """Versions of packages on which cached features depend: timm, and torch without its bug-fix version."""
    return [f"torch {'.'.join(torch.__version__.split('.')[:2])}", f"timm {metadata.version('timm')}"]


def _extract(
    chunks: Chunks,
    folder: Path,
    key: str,
    compute: Callable[[Sequence[int]], Generator[Computed, None, None]],
    progress: Callable[[int], None],
) -> None:
    """Compute missing chunks, then mark the array as complete. A chunk is logged when its bytes are on disk."""
    unfinished, log_path, plan_path = (folder / name for name in (f"{ARRAY}.partial", "chunks.log", "plan.json"))
    places, backbone, (images, cells, dim) = chunks.places(), chunks.backbone, chunks.shape
    # Further settings on which the bytes may depend, and a description for people who look into the folder.
    plan = {
        "key": key,
        "shape": list(chunks.shape),
        "batch_size": chunks.batch_size,
        "device": chunks.device,
        "versions": {"torch": torch.__version__, "timm": metadata.version("timm")},
        "backbone": backbone.describe(),
        "preprocessing": backbone.preprocessing.key(),
        "dataset": chunks.dataset.name,
    }
    header = array_header(chunks.shape)
    _begin(folder, json.dumps(plan), header, len(header) + math.prod(chunks.shape) * 2)
    logged = log_path.read_text().rpartition("\n")[0] if log_path.is_file() else ""  # without a torn last line
    finished = set(map(int, logged.split()))
    log_path.write_text("".join(f"{index}\n" for index in sorted(finished)))
    missing = [index for index in range(len(places)) if index not in finished]
    done = images - sum(places[index][1] - places[index][0] for index in missing)
    progress(done)
    if missing:
        with unfinished.open("r+b") as array, log_path.open("a") as log, closing(compute(missing)) as computed:
            for index, batches in computed:
                array.seek(len(header) + places[index][0] * cells * dim * 2)
                for rows in batches:
                    array.write(rows.tobytes())
                    done += len(rows)
                    progress(done)
                array.flush()
                os.fsync(array.fileno())
                log.write(f"{index}\n")
                log.flush()
                os.fsync(log.fileno())
    if isinstance(backbone, TrainableBackbone):
        backbone.rest()  # frees its memory for training, whose peak memory is measured
    unfinished.replace(folder / ARRAY)
    ids = [sample.image_id for sample in chunks.samples]
    write_text(folder / META, json.dumps(plan | {"grid": list(backbone.grid), "image_ids": ids}))
    for leftover in (log_path, plan_path):
        leftover.unlink(missing_ok=True)


def _begin(folder: Path, plan: str, header: bytes, size: int) -> None:
    """Keep an unfinished array of the same plan; otherwise begin a new, empty one of `size` bytes."""
    unfinished, log_path, plan_path = (folder / name for name in (f"{ARRAY}.partial", "chunks.log", "plan.json"))
    finished = folder / ARRAY
    if finished.is_file() and not unfinished.is_file():  # killed just before it was marked as complete
        finished.replace(unfinished)
    is_same_plan = plan_path.is_file() and plan_path.read_text() == plan
    if is_same_plan and unfinished.is_file() and unfinished.stat().st_size == size:
        return
    for stale in (plan_path, log_path, unfinished, finished):
        stale.unlink(missing_ok=True)
    free = shutil.disk_usage(folder).free
    if free < size:
        raise OSError(errno.ENOSPC, f"{size / 1e9:.2f} GB are needed, {free / 1e9:.2f} GB are free")
    with unfinished.open("wb") as array:
        array.write(header)
        array.truncate(size)
        os.fsync(array.fileno())
    write_text(plan_path, plan)


def make_once(folder: Path, make: Callable[[], None], noun: str, reporter: Reporter) -> None:
    """Call `make` in one process to fill a cache folder that is not complete; BenchError for a full disk."""
    if (folder / META).is_file():
        return
    waiting = f"another process is making these {noun} in {folder}; waiting for it"
    try:
        with locked(folder / "lock", lambda: reporter.note(waiting)):
            if not (folder / META).is_file():
                make()
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise BenchError(
                f"the disk is full: the features do not fit into {folder} ({error.strerror})",
                hint="free some space, or choose another place with --workspace; the same command then continues",
            ) from error
        raise
