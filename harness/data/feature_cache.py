"""Cache of a frozen backbone's features on disk: resumable, and shared between processes.

A cache folder `features/<key>/` holds `plan.json` (settings of an unfinished extraction), `chunks.log` (the
number of every chunk that is on the disk, a line each), `lock`, and in the end `features.npy` and `meta.json`, whose
existence marks the array as complete. Batches never cross a chunk, so an extraction that is killed and resumed computes
the same batches, hence the same bytes, as an uninterrupted one.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
import shutil
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from harness.data.backbones.backbone import Backbone, TrainableBackbone
from harness.data.chunks import Chunks, Spread
from harness.data.dataset import Dataset
from harness.data.features import ARRAY, META, Features, array_header
from harness.utils.atomic import write_text
from harness.utils.errors import BenchError
from harness.utils.progress import Reporter, silent
from harness.utils.storage import Storage
from harness.utils.workspace import locked

FORMAT = 1
BATCH_SIZE = 32


def extract_features(
    dataset: Dataset,
    backbone: Backbone,
    *,
    cache_dir: Path,
    skip: Collection[int] = (),
    device: str = "cpu",
    reporter: Reporter | None = None,
    storage: Storage | None = None,
    spread: Spread | None = None,
) -> Features:
    """Features of all images of a data set but those in `skip`, from the cache where it has them.

    Raises:
        BenchError: an image that cannot be read, a full disk, features beyond half precision, a damaged cache.
    """
    left_out = frozenset(skip)
    samples = [sample for sample in dataset.samples if sample.image_id not in left_out]
    if not samples:
        raise BenchError(f"data set {dataset.name} has no image to extract features from")
    folder = features_folder(dataset, backbone, cache_dir, left_out)
    chunks = Chunks(dataset, samples, backbone, BATCH_SIZE, device)
    extraction = _Extraction(chunks, folder, _key(dataset, backbone, left_out), spread)
    reporter = reporter or silent()

    def extract() -> None:
        with reporter.task(f"features ({backbone.name})", len(samples)) as task:
            extraction.run(task.reach)

    make_once(folder, extract, "features", reporter, storage)
    return Features(folder)


def features_folder(dataset: Dataset, backbone: Backbone, cache_dir: Path, skip: Collection[int]) -> Path:
    """Where the features of all images but those in `skip` are, or will be."""
    return cache_dir / "features" / _key(dataset, backbone, skip)[:24]


def _key(dataset: Dataset, backbone: Backbone, skip: Collection[int]) -> str:
    """Hex digest of everything that determines the features."""
    parts = [FORMAT, backbone.digest, backbone.preprocessing.key(), dataset.fingerprint, sorted(skip), computed_by()]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def computed_by() -> list[str]:
    """Packages whose other versions extract features anew: timm, and torch, whose bug-fix releases are left out."""
    return [f"torch {'.'.join(torch.__version__.split('.')[:2])}", f"timm {metadata.version('timm')}"]


@dataclass(frozen=True)
class _Extraction:
    chunks: Chunks
    folder: Path
    key: str
    spread: Spread | None

    @property
    def shape(self) -> tuple[int, int, int]:
        """Images, cells, channels."""
        backbone = self.chunks.backbone
        height, width = backbone.grid
        return len(self.chunks.samples), height * width, backbone.dim

    def run(self, progress: Callable[[int], None]) -> None:
        """Compute the missing chunks, then mark the array as complete; a chunk is logged once its bytes are on disk."""
        unfinished, log_path = self.folder / f"{ARRAY}.partial", self.folder / "chunks.log"
        places, backbone, (images, cells, dim) = self.chunks.places(), self.chunks.backbone, self.shape
        self._prepare(unfinished, log_path)
        logged = log_path.read_text().rpartition("\n")[0] if log_path.is_file() else ""  # less a torn last line
        finished = set(map(int, logged.split()))
        log_path.write_text("".join(f"{index}\n" for index in sorted(finished)))
        missing = [index for index in range(len(places)) if index not in finished]
        done = images - sum(places[index][1] - places[index][0] for index in missing)
        progress(done)
        compute = self.chunks.compute if self.spread is None else partial(self.spread, self.chunks)
        if missing:
            with (
                unfinished.open("r+b") as array,
                log_path.open("a") as log,
                contextlib.closing(compute(missing)) as computed,
            ):
                for index, batches in computed:
                    array.seek(len(array_header(self.shape)) + places[index][0] * cells * dim * 2)
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
        unfinished.replace(self.folder / ARRAY)
        height, width = backbone.grid
        ids = [sample.image_id for sample in self.chunks.samples]
        write_text(self.folder / META, json.dumps(self._plan() | {"grid": [height, width], "image_ids": ids}))
        for leftover in (log_path, self.folder / "plan.json"):
            leftover.unlink(missing_ok=True)

    def _plan(self) -> dict[str, Any]:
        """What the bytes may depend on beyond the key, and a description for readers of the folder."""
        return {
            "key": self.key,
            "shape": list(self.shape),
            "batch_size": self.chunks.batch_size,
            "device": self.chunks.device,
            "versions": {"torch": torch.__version__, "timm": metadata.version("timm")},
            "backbone": self.chunks.backbone.describe(),
            "preprocessing": self.chunks.backbone.preprocessing.key(),
            "dataset": self.chunks.dataset.name,
        }

    def _prepare(self, partial: Path, log_path: Path) -> None:
        """Keep an unfinished array made under the same plan; otherwise begin anew with an empty one of full size."""
        plan_path, plan = self.folder / "plan.json", json.dumps(self._plan())
        finished = self.folder / ARRAY
        if finished.is_file() and not partial.is_file():  # killed just before it was marked as complete
            finished.replace(partial)
        header = array_header(self.shape)
        wanted = len(header) + math.prod(self.shape) * 2
        there = plan_path.is_file() and plan_path.read_text() == plan
        if there and partial.is_file() and partial.stat().st_size == wanted:
            return
        for stale in (plan_path, log_path, partial, finished):
            stale.unlink(missing_ok=True)
        free = shutil.disk_usage(self.folder).free
        if free < wanted:
            raise OSError(errno.ENOSPC, f"{wanted / 1e9:.2f} GB are needed, {free / 1e9:.2f} GB are free")
        with partial.open("wb") as array:
            array.write(header)
            array.truncate(wanted)
            os.fsync(array.fileno())
        write_text(plan_path, plan)


def make_once(folder: Path, make: Callable[[], None], what: str, reporter: Reporter, storage: Storage | None) -> None:
    """Have `make` fill a folder of the cache, unless it or the remote storage has it whole; one process does it.

    Raises:
        BenchError: the disk is full or cannot be written.
    """
    if (folder / META).is_file():
        return

    waiting = f"another process is making these {what} in {folder}; waiting for it"
    try:
        with locked(folder / "lock", lambda: reporter.note(waiting)):
            if not is_cached(folder, storage):
                make()
                if storage is not None:
                    storage.push(folder, _remote_name(folder))
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise BenchError(
                f"the disk is full: the features do not fit into {folder} ({error.strerror})",
                hint="free some space, or choose another place with --workspace; the same command then continues",
            ) from error
        raise


def is_cached(folder: Path, storage: Storage | None) -> bool:
    """Whether a folder of the cache is whole, after it was fetched where the remote storage has it."""
    if storage is not None and not (folder / META).is_file():
        storage.fetch(folder, _remote_name(folder))
    return (folder / META).is_file()


def _remote_name(folder: Path) -> str:
    return f"{folder.parent.name}/{folder.name}"
