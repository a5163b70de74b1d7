"""Open the data set that `--data` names: the embedded one, or an annotation file with its images."""

from contextlib import nullcontext, suppress
from pathlib import Path

from harness.data.dataset import Dataset
from harness.data.karpathy import annotation_file, picture_folder, read_karpathy, refuse_non_json
from harness.data.scenes.dataset import SCENES, prepare_scenes
from harness.data.stored_dataset import load_dataset, save_dataset, stored_path
from harness.utils.errors import BenchError
from harness.utils.files import expanded
from harness.utils.progress import Reporter
from results.files import without_collection


def check_dataset(spec: str, images: Path | None = None, *, trains: bool = False) -> None:
    """BenchError where `--data` names no data set, several files, or with `trains` a file that needs conversion."""
    if spec not in SCENES:
        file = annotation_file(expanded(spec))
        if trains:
            refuse_non_json(file, images)


def open_dataset(
    spec: str,
    *,
    cache_dir: Path,
    images: Path | None = None,
    reporter: Reporter | None = None,
    any_format: bool = True,
) -> Dataset:
    """Open an embedded data set, a folder in Karpathy's format, or references in any other (`read_karpathy`).

    `spec` is a name of `SCENES` (generated under `cache_dir` on first use), a folder with dataset*.json[.gz] and
    images, or an annotation file itself. BenchError where it does not exist or cannot be read; single unusable images
    are in `Dataset.faults` instead.
    """
    if spec in SCENES:
        if images is not None:
            raise BenchError(f"--images cannot be used with {spec}: the embedded data set has its own images")
        folder = prepare_scenes(cache_dir, SCENES[spec], reporter)
        return read_karpathy(folder, name=spec)
    with nullcontext() if reporter is None else reporter.step(f"Reading {spec}"):
        return _read_once(expanded(spec), images, cache_dir, any_format=any_format)


def _read_once(location: Path, images: Path | None, cache_dir: Path, *, any_format: bool) -> Dataset:
    """The data set from the cache if it is up to date; otherwise read it, and add it to the cache.

    References in other formats are small and are not cached.
    """
    file = annotation_file(location)
    path = stored_path(cache_dir, file, picture_folder(file, images))
    stored = load_dataset(path, file)
    if stored is not None:
        return stored
    with without_collection():
        dataset = read_karpathy(file, images=images, any_format=any_format)
    if not dataset.is_references and cache_dir.parent.is_dir():  # a plan makes no workspace
        with suppress(OSError):  # a cache that cannot be written costs time only
            save_dataset(path, file, dataset)
    return dataset
