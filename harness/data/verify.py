"""Find all unusable images of a data set before training starts."""

import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import PIL

from harness.data.dataset import Dataset, Sample
from harness.data.images import BadImage, load_image
from harness.utils.atomic import write_text
from harness.utils.errors import BenchError
from harness.utils.hashing import digest
from harness.utils.progress import Reporter
from results.files import read_text

VERSION = 1  # raise it when `load_image` changes which images it accepts
_PORTION = 32  # images that a thread takes at a time
_MAX_THREADS = 8


def find_bad_images(dataset: Dataset, *, cache_dir: Path, reporter: Reporter, reuse: bool = True) -> dict[int, str]:
    """Decode every image to its last row; return the reasons of failures and `Dataset.faults`, by image id.

    Args:
        reuse: whether to return cached results, which do not notice changes that keep a file's size and both ends.

    Raises:
        BenchError: see `require_pictures`.
    """
    require_pictures(dataset)
    cached = known_bad_images(dataset, cache_dir) if reuse else None
    if cached is not None:
        return cached
    cache_dir.mkdir(parents=True, exist_ok=True)
    total = len(dataset.samples)
    portions = [dataset.samples[start : start + _PORTION] for start in range(0, total, _PORTION)]
    bad: dict[int, str] = {}
    with (
        reporter.task("images checked", total) as task,
        ThreadPoolExecutor(min(_MAX_THREADS, os.cpu_count() or 1)) as threads,  # Pillow decodes without the GIL
    ):
        for portion, reasons in zip(portions, threads.map(lambda part: _check(dataset, part), portions), strict=True):
            bad.update(reasons)
            task.advance(len(portion))
    write_text(_cache_file(dataset, cache_dir), json.dumps(bad))
    return bad


def known_bad_images(dataset: Dataset, cache_dir: Path) -> dict[int, str] | None:
    """The cached result of `find_bad_images`, in the data set's order; None if images were not decoded yet."""
    try:
        stored = json.loads(read_text(_cache_file(dataset, cache_dir)))
        return {int(image_id): str(reason) for image_id, reason in stored.items()}
    except (OSError, ValueError, AttributeError):
        return None


def _cache_file(dataset: Dataset, cache_dir: Path) -> Path:
    return cache_dir / f"verified-{digest([VERSION, PIL.__version__, dataset.fingerprint])}.json"


def has_pictures(dataset: Dataset) -> bool:
    """Whether any image file exists, or the data set has no image files."""
    files = [sample.file for sample in dataset.samples if sample.file]
    return not files or any(os.path.lexists(f"{dataset.root}/{file}") for file in files)


def require_pictures(dataset: Dataset) -> None:
    """BenchError where no image file exists, since the folder is probably wrong."""
    if not has_pictures(dataset):
        first = next(sample.file for sample in dataset.samples if sample.file)
        raise BenchError(
            f"none of the {len(dataset.samples)} images of {dataset.name} is in {dataset.root}, for example {first}",
            "give their folder: --images DIR",
        )


def _check(dataset: Dataset, samples: Sequence[Sample]) -> Mapping[int, str]:
    bad = {}
    expected = any(sample.file for sample in dataset.samples)
    for sample in samples:
        reasons = [dataset.faults[sample.image_id]] if sample.image_id in dataset.faults else []
        if sample.file:
            try:
                load_image(dataset.path(sample))
            except BadImage as error:
                reasons.append(f"{sample.file} {error.reason}")
        elif expected and not reasons:
            reasons.append("it has no image file")
        if reasons:
            bad[sample.image_id] = "; ".join(reasons)
    return bad
