"""Download missing parts of public data sets with pooch, check and unpack them."""

from __future__ import annotations

import re
import shutil
import zipfile
import zlib
from collections import Counter
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from harness.data.formats.references import read_references
from harness.data.karpathy import read_entries
from harness.data.sources import Annotations, Origin, PictureArchive, RemoteFile
from harness.utils.errors import BenchError
from harness.utils.files import shortened
from harness.utils.progress import Reporter, Task
from harness.utils.workspace import locked

PARTS: Final = ("annotations", "images")
STAGING: Final = ".download"
_FILE_NAME: Final = re.compile(r"\w[\w.-]*", re.ASCII)
_AT_ONCE: Final = 8
_JPEG: Final = b"\xff\xd8\xff"
_ELSEWHERE: Final = "name another place with --mirror URL"


def download(name: str, source: Origin, folder: Path, parts: Collection[str], reporter: Reporter) -> None:
    """Fetch the parts of a data set that are not in `folder` yet.

    Annotations go to the folder itself, pictures below its `images`; each file or folder of pictures appears whole.
    BenchError where a part cannot be fetched, is not what it should be, or has no room, or the pictures need a form.
    """
    annotations = folder / source.annotations.file
    images = folder / "images"
    staging = folder / STAGING
    if "images" in parts and source.form is not None:
        raise BenchError(
            f"the pictures of {name} are given to who asks for them alone: fill in the form at {source.form}",
            f"bench data download {name} --what annotations, and put the pictures into {images}",
        )
    staging.mkdir(parents=True, exist_ok=True)
    with locked(staging / "lock", lambda: reporter.note(f"waiting for another download into {folder}")):
        missing = [each for each in source.archives if "images" in parts and not (images / each.folder).exists()]
        _check_room(missing, folder)
        if "annotations" in parts:
            _fetch_annotations(source.annotations, annotations, staging, reporter)
        for archive in missing:
            _fetch_archive(archive, images, staging, reporter)
        if "images" in parts and source.singly is not None:
            _fetch_singly(source.singly, annotations, images / name, reporter)
        shutil.rmtree(staging, ignore_errors=True)


def fetch(
    url: str, path: Path, *, sha256: str | None = None, progress: Task | None = None, otherwise: str = _ELSEWHERE
) -> Path:
    """Download a file to `path`; BenchError where it cannot be fetched, or has another checksum."""
    import pooch
    import requests

    pooch.get_logger().setLevel("ERROR")  # it would write into the bar
    known_hash = None if sha256 is None else f"sha256:{sha256}"
    downloader = pooch.HTTPDownloader(progressbar=False if progress is None else _Bar(progress))
    try:
        return Path(pooch.retrieve(url, known_hash, fname=path.name, path=path.parent, downloader=downloader))
    except requests.HTTPError as error:
        answer = error.response
        raise BenchError(f"{url}: the server answers {answer.status_code} {answer.reason}", otherwise) from error
    except requests.RequestException as error:
        cause = getattr(error.args[0] if error.args else None, "reason", error)  # of urllib3, without its pool
        reason = shortened(" ".join(str(cause).rpartition(": ")[2].split()))
        raise BenchError(f"{url} cannot be fetched: {reason}", f"check the network, or {otherwise}") from error
    except ValueError as error:  # of pooch's comparison
        raise BenchError(f"{url} is not the file that is meant: its SHA-256 is not {sha256}", otherwise) from error


class _Bar:
    """A task's count of MB, as pooch counts bytes; pooch sets `total`."""

    def __init__(self, task: Task) -> None:
        self.total = 0
        self._task = task
        self._done = 0

    def update(self, count: int) -> None:
        self._done += count
        self._task.reach(self._done >> 20)

    def reset(self) -> None:
        self._done = 0

    def close(self) -> None:
        """Do nothing: the task's owner closes it."""


def _fetch_annotations(expected: Annotations, target: Path, staging: Path, reporter: Reporter) -> None:
    if not target.exists():
        fetched = _fetch_file(expected, staging, reporter)
        try:
            files = _unpack(fetched, staging, [expected.member]) if expected.member else [fetched]
            if len(files) != 1:
                raise BenchError(f"it holds {len(files)} files {expected.member}")
            _check_annotations(files[0], expected)
        except (BenchError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
            fetched.unlink(missing_ok=True)  # so that it can be fetched again
            reason = " ".join(str(error).split()) or type(error).__name__
            raise BenchError(f"{expected.url} is not the file that is meant: {reason}", _ELSEWHERE) from error
        files[0].replace(target)
        fetched.unlink(missing_ok=True)
    reporter.note(f"{target}: {_check_annotations(target, expected)}")


def _fetch_archive(archive: PictureArchive, images: Path, staging: Path, reporter: Reporter) -> None:
    packed = _fetch_file(archive, staging, reporter)
    reporter.note(f"unpacking {archive.name}")
    files = _unpack(packed, staging)
    images.mkdir(exist_ok=True)
    (staging / "unpacked" / archive.folder).rename(images / archive.folder)
    packed.unlink()
    reporter.note(f"{images / archive.folder}: {len(files):,} pictures")


def _fetch_file(file: RemoteFile, staging: Path, reporter: Reporter) -> Path:
    with reporter.task(f"{file.name} (MB)", file.bytes >> 20) as task:
        return fetch(file.url, staging / file.name, sha256=file.sha256, progress=task)


def _unpack(archive: Path, staging: Path, members: list[str] | None = None) -> list[Path]:
    """The archive's files, below `unpacked`; Python's zipfile writes nothing outside of it, and no links."""
    import pooch

    shutil.rmtree(staging / "unpacked", ignore_errors=True)  # what an earlier command began
    return [Path(file) for file in pooch.Unzip(members, "unpacked")(str(archive), "download", None)]


def _check_annotations(file: Path, expected: Annotations) -> str:
    """The numbers of images by split, as text; BenchError where they or the format differ from those expected."""
    if "images" in expected.splits:
        counts = {"images": len(read_references(file).captions)}
    else:
        counts = dict(Counter(str(entry.get("split")) for entry in read_entries(file)[1]))
    counted, required = (
        ", ".join(f"{name} {numbers[name]:,}" for name in sorted(numbers)) for numbers in (counts, expected.splits)
    )
    if counted != required:
        raise BenchError(f"{file} holds {counted or 'nothing'}, not {required}", _ELSEWHERE)
    return counted


def _check_room(missing: Sequence[PictureArchive], folder: Path) -> None:
    """BenchError unless there is room for all archives unpacked, and for the largest one packed."""
    sizes = [archive.bytes for archive in missing]
    staged = [path.stat().st_size for archive in missing if (path := folder / STAGING / archive.name).exists()]
    needed = sum(sizes) + max(sizes, default=0) - sum(staged)
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise BenchError(
            f"the pictures, packed and unpacked, need {needed / 1e9:,.2f} GB more, but {folder} has {free / 1e9:,.2f}",
            "make room, or name another folder with --to FOLDER",
        )


def _fetch_singly(address: str, annotations: Path, folder: Path, reporter: Reporter) -> None:
    if not annotations.is_file():
        raise BenchError(f"{annotations}, which names the pictures, is not there", "--what annotations,images")
    names = list(read_references(annotations).files.values())
    if strange := [name for name in names if not _FILE_NAME.fullmatch(name)]:
        raise BenchError(f"{annotations}: {strange[0]!a} is no file's name", _ELSEWHERE)
    missing = [name for name in names if not (folder / name).is_file()]
    with reporter.task("pictures fetched", len(names), len(names) - len(missing)) as task:
        pool = ThreadPoolExecutor(_AT_ONCE)
        try:
            for _ in pool.map(lambda name: _fetch_picture(address + name, folder / name), missing):
                task.advance()
        finally:
            pool.shutdown(cancel_futures=True)
    reporter.note(f"{folder}: {len(names):,} pictures")


def _fetch_picture(url: str, path: Path) -> None:
    fetch(url, path)
    with path.open("rb") as opened:
        begins = opened.read(len(_JPEG))
    if begins != _JPEG:  # a page that says something, for example
        path.unlink()
        raise BenchError(f"{url} is not a JPEG picture", _ELSEWHERE)
