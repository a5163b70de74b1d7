"""A data set as it was read once, kept in the cache: it opens in a tenth of the time that its annotations take.

The file is an .npz of plain arrays. It is used if the annotations have the same bytes, the code that reads them is the
same, and every image file has the size and the time of change that it had, or is still missing; otherwise the data set
is read anew. Workers of one benchmark therefore parse nothing.
"""

import hashlib
import json
import os
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.data.dataset import Dataset, Sample
from harness.utils.atomic import replacing
from harness.utils.hashing import digest, sha256_of
from results.files import without_collection

_UNKNOWN = -1  # number of boxes, tokens or a domain that an image does not have; size of a file that is missing
_DAMAGE = (OSError, ValueError, KeyError, zipfile.BadZipFile, EOFError)


def stored_path(cache_dir: Path, annotations: Path, root: Path) -> Path:
    """The cache file for the data set of an annotation file and an image folder."""
    return cache_dir / "datasets" / f"{digest([str(annotations.resolve()), str(root)], 24)}.npz"


def load_dataset(path: Path, annotations: Path) -> Dataset | None:
    """The stored data set; None if there is none, or if a file that it was read from has changed."""
    try:
        with np.load(path, allow_pickle=False) as arrays, without_collection():
            meta = json.loads(arrays["meta"].tobytes())
            if meta["read_from"] != _read_from(annotations):
                return None
            dataset = _from_arrays(meta, arrays)
            if any(os.path.lexists(f"{dataset.root}/{file}") for file in dataset.absent_files):
                return None
            if not np.array_equal(_file_states(dataset), arrays["file_states"]):
                return None
            return dataset
    except _DAMAGE:
        return None


def save_dataset(path: Path, annotations: Path, dataset: Dataset) -> None:
    """Write the data set for later processes; OSError if the cache cannot be written."""
    samples = dataset.samples
    meta = {
        "read_from": _read_from(annotations),
        "name": dataset.name,
        "root": str(dataset.root),
        "fingerprint": dataset.fingerprint,
        "faults": list(dataset.faults.items()),
        "sizes": [[image_id, *size] for image_id, size in dataset.sizes.items()],
        "splits": list(dict.fromkeys(sample.split for sample in samples)),
        "domains": list(dict.fromkeys(sample.domain for sample in samples if sample.domain is not None)),
    }
    splits, domains = ({name: index for index, name in enumerate(meta[key])} for key in ("splits", "domains"))
    columns = [
        (
            sample.image_id,
            splits[sample.split],
            _UNKNOWN if sample.domain is None else domains[sample.domain],
            sample.restval,
            len(sample.captions),
            _UNKNOWN if sample.boxes is None else len(sample.boxes),
            _UNKNOWN if sample.tokens is None else len(sample.tokens),
        )
        for sample in samples
    ]
    boxes = [box for sample in samples for box in sample.boxes or ()]
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez(
            file,
            meta=np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8),
            columns=np.array(columns, dtype=np.int64),
            files=_lines(sample.file for sample in samples),
            captions=_lines(chain.from_iterable(sample.captions for sample in samples)),
            tokens=_lines(chain.from_iterable(sample.tokens or () for sample in samples)),
            boxes=np.array(boxes, dtype=np.float64).reshape(-1, 4),
            absent_files=_lines(dataset.absent_files),
            file_states=_file_states(dataset),
        )


def _from_arrays(meta: dict[str, Any], arrays: Any) -> Dataset:
    files = iter(_texts(arrays["files"]))
    captions = iter(_texts(arrays["captions"]))
    tokens = iter(_texts(arrays["tokens"]))
    boxes = map(tuple, arrays["boxes"].tolist())
    samples = []
    for image_id, split, domain, restval, n_captions, n_boxes, n_tokens in arrays["columns"].tolist():
        samples.append(
            Sample(
                image_id,
                next(files),
                meta["splits"][split],
                tuple(islice(captions, n_captions)),
                None if domain == _UNKNOWN else meta["domains"][domain],
                None if n_boxes == _UNKNOWN else tuple(islice(boxes, n_boxes)),
                None if n_tokens == _UNKNOWN else tuple(islice(tokens, n_tokens)),
                bool(restval),
            )
        )
    return Dataset(
        name=meta["name"],
        root=Path(meta["root"]),
        samples=tuple(samples),
        fingerprint=meta["fingerprint"],
        faults=dict(meta["faults"]),
        sizes={image_id: (width, height) for image_id, width, height in meta["sizes"]},
        absent_files=tuple(_texts(arrays["absent_files"])),
    )


def _lines(texts: Iterable[str]) -> NDArray[np.uint8]:
    """Texts without line ends, each ended by one."""
    return np.frombuffer("".join(f"{text}\n" for text in texts).encode(), dtype=np.uint8)


def _texts(lines: NDArray[np.uint8]) -> Sequence[str]:
    """The texts given to `_lines`."""
    return lines.tobytes().decode().split("\n")[:-1]


def _file_states(dataset: Dataset) -> NDArray[np.int64]:
    """Size and time of change of every image file, (N, 2)."""

    def states() -> Iterator[tuple[int, int]]:
        for sample in dataset.samples:
            try:
                state = os.stat(f"{dataset.root}/{sample.file}")  # noqa: PTH116 - a path object takes longer than this
            except OSError:
                yield _UNKNOWN, _UNKNOWN
            else:
                yield state.st_size, state.st_mtime_ns

    return np.array(list(states()), dtype=np.int64)


def _read_from(annotations: Path) -> list[str]:
    """Everything besides image files that a stored data set depends on: annotations, and the code that reads them."""
    return [annotations.name, sha256_of(annotations), reading_code()]


@cache
def reading_code() -> str:
    """A digest of the code that reads data: results of other versions are not used."""
    sources = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        sources.update(path.read_bytes())
    return sources.hexdigest()
