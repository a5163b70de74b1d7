"""Download a data set: what is missing of it, unpacked, checked and in its place."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.data.annotations.image_paths import RefusedPath, plain_path
from harness.data.download.archives import extract_file, unpack_pictures
from harness.data.download.checks import check_all_named, check_annotations, count_pictures
from harness.data.download.sources import RemoteFile, Source
from harness.data.download.transfer import PART, fetch, require_space
from harness.data.formats import read_references
from harness.utils.atomic import replacing
from harness.utils.errors import BenchError
from harness.utils.files import reason
from harness.utils.progress import Reporter
from harness.utils.workspace import locked

PARTS: Final = ("annotations", "images")
STAGING: Final = ".download"
"""Folder, in that of the data set, of what is not whole; it goes when everything is there."""
AT_ONCE: Final = 8
"""Connections for pictures that are fetched one by one."""
_JPEG: Final = b"\xff\xd8\xff"

Pause = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Downloaded:
    """Where the parts of a data set lie; whether or not this command fetched them.

    `pictures` counts those that are there and were asked for, None where none were asked for.
    """

    annotations: Path
    images: Path
    pictures: int | None


def download(
    name: str, source: Source, folder: Path, what: Collection[str], reporter: Reporter, *, pause: Pause | None = None
) -> Downloaded:
    """Fetch the parts of a data set that are not in `folder` yet.

    Annotations go to the folder itself, pictures below its `images`; each file or folder of pictures appears whole.

    Args:
        what: of `PARTS`.
        pause: as of `ResumingDownloader`.

    Raises:
        BenchError: a part cannot be fetched, is not what it should be, or has no room; or the pictures need a form.
    """
    if "images" in what and source.form is not None:
        raise BenchError(
            f"the pictures of {name} are given to who asks for them alone: fill in the form at {source.form}",
            f"bench data download {name} --what annotations, and put the pictures into {folder / 'images'}",
        )
    images, expected = folder / "images", source.annotations
    annotations = folder / (expected.member or expected.name)
    staging = folder / STAGING
    try:
        staging.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BenchError(f"--to {folder} cannot be used: {reason(error)}", "name another folder with --to") from error
    pictures = None
    with locked(staging / "lock", lambda: reporter.note(f"waiting for another download into {folder}")):
        if "images" in what:
            _check_room(source, folder)
        if "annotations" in what:
            _fetch_annotations(source, annotations, staging, reporter, pause)
        if "images" in what:
            for archive in source.archives:
                target = images / archive.folder
                if not _whole(target, archive.pictures):
                    packed = fetch(archive, staging, reporter, pause=pause)
                    unpack_pictures(packed, target, count=archive.pictures, reporter=reporter)
                    packed.unlink()
                reporter.note(f"{target}: {archive.pictures:,} pictures")
            pictures = sum(archive.pictures for archive in source.archives)
            if source.archives and annotations.is_file():
                check_all_named(annotations, images)
            if source.singly is not None:
                pictures = _fetch_singly(source.singly, annotations, images / name, reporter, pause)
        shutil.rmtree(staging, ignore_errors=True)
    return Downloaded(annotations, images, pictures)


def _fetch_annotations(source: Source, target: Path, staging: Path, reporter: Reporter, pause: Pause | None) -> None:
    expected = source.annotations
    if not target.exists():
        fetched = fetch(expected, staging, reporter, pause=pause)
        try:
            with replacing(target) as temporary:
                if expected.member is None:
                    shutil.copyfile(fetched, temporary)
                else:
                    extract_file(fetched, expected.member, temporary)
                _check_whole(temporary, target, source)
        finally:
            fetched.unlink(missing_ok=True)  # a wrong one is not to be met again
    reporter.note(f"{target}: {check_annotations(target, expected)}")


def _check_whole(temporary: Path, target: Path, source: Source) -> None:
    """What `check_annotations` refuses, by the name that the file was to have."""
    try:
        check_annotations(temporary, source.annotations)
    except BenchError as error:
        said = str(error).replace(str(temporary), target.name).replace(temporary.name, target.name)
        raise BenchError(
            f"{source.annotations.url} was fetched, but: {said}", "name another place with --mirror URL"
        ) from error


def _check_room(source: Source, folder: Path) -> None:
    """Room for every archive that is missing, unpacked, and for the largest one packed beside them."""
    missing = [each for each in source.archives if not _whole(folder / "images" / each.folder, each.pictures)]
    sizes = [each.bytes or 0 for each in missing]
    begun = [folder / STAGING / (each.name + suffix) for each in missing for suffix in ("", PART)]
    there = sum(path.stat().st_size for path in begun if path.exists())
    if sizes:
        require_space(folder, sum(sizes) + max(sizes) - there, "what is missing of the pictures, packed and unpacked,")


def _whole(folder: Path, count: int) -> bool:
    """Whether a folder of pictures is there; BenchError where another number of them is."""
    if not folder.exists():
        return False
    found = count_pictures(folder)
    if found != count:
        raise BenchError(
            f"{folder} holds {found:,} pictures, not {count:,}",
            "move it away, then type the same command again; or name another folder with --to FOLDER",
        )
    return True


def _fetch_singly(address: str, annotations: Path, folder: Path, reporter: Reporter, pause: Pause | None) -> int:
    """Fetch each picture that the annotations name; how many there are."""
    if not annotations.is_file():
        raise BenchError(f"{annotations}, which names the pictures, is not there", "--what annotations,images")
    names = list(read_references(annotations).files.values())
    for name in names:
        try:
            plain = plain_path(name)
        except RefusedPath as refusal:
            raise BenchError(f"{annotations}: {refusal}", "name another place with --mirror URL") from refusal
        if plain != name or "/" in name or "\\" in name or name.startswith("."):
            raise BenchError(f"{annotations}: {name!a} is no file's name", "name another place with --mirror URL")
    missing = [name for name in names if not (folder / name).is_file()]
    with reporter.task("pictures fetched", len(names), len(names) - len(missing)) as task:
        pool = ThreadPoolExecutor(AT_ONCE)
        files = (RemoteFile(url=f"{address}{name}") for name in missing)
        try:
            for _ in pool.map(lambda file: _fetch_picture(file, folder, reporter, pause), files):
                task.advance()
        finally:
            pool.shutdown(cancel_futures=True)
    reporter.note(f"{folder}: {len(names):,} pictures")
    return len(names)


def _fetch_picture(file: RemoteFile, folder: Path, reporter: Reporter, pause: Pause | None) -> None:
    fetched = fetch(file, folder, reporter, pause=pause, quiet=True)
    with fetched.open("rb") as opened:
        begins = opened.read(len(_JPEG))
    if begins != _JPEG:  # a page that says something, for example
        fetched.unlink()
        raise BenchError(f"{file.url} is not a JPEG picture", "name another place with --mirror URL")
