"""Files out of downloaded zip archives, whose names are not trusted; what appears is whole."""

from __future__ import annotations

import shutil
import stat
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from harness.data.annotations.image_paths import RefusedPath, plain_path
from harness.data.download.transfer import require_space
from harness.utils.errors import BenchError
from harness.utils.files import reason
from harness.utils.progress import Reporter

PICTURES = (".jpg", ".jpeg", ".png")
_PIECE = 1 << 20
_AGAIN = "it is deleted; type the same command again, or name another place with --mirror URL"


def extract_file(archive: Path, name: str, target: Path) -> None:
    """Write the one file of this name, in whatever folder of the archive, to `target`.

    Raises:
        BenchError: there is none, or several, or it is damaged: the archive is then deleted; or the disk is full.
    """
    with _opened(archive) as opened:
        found = [info for info in _files(opened) if PurePosixPath(info.filename).name == name]
        if len(found) != 1:
            raise _Wrong(f"it holds {len(found)} files {name}")
        require_space(target.parent, found[0].file_size, name)
        _copy(opened, found[0], target)


def unpack_pictures(archive: Path, folder: Path, *, count: int, reporter: Reporter) -> None:
    """Unpack the archive's pictures, all in one folder called as `folder` is, which then appears at once.

    Raises:
        BenchError: it holds another number of pictures or anything else, or is damaged: it is then deleted; or the
            disk is full.
    """
    with _opened(archive) as opened:
        infos = _files(opened)
        strange = [
            info.filename
            for info in infos
            if (path := PurePosixPath(plain_path(info.filename))).parent != PurePosixPath(folder.name)
            or path.suffix.lower() not in PICTURES
        ]
        if strange:
            raise _Wrong(f"it holds {strange[0]!a}, which is no picture in {folder.name}/")
        if len({info.filename for info in infos}) != count:
            raise _Wrong(f"it holds {len(infos):,} pictures, not {count:,}")
        require_space(folder.parent, sum(info.file_size for info in infos), f"{archive.name}, unpacked,")
        temporary = folder.with_name(f".{folder.name}.unpacking")
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        try:
            with reporter.task(f"{folder.name} unpacked", count) as task:
                for info in infos:
                    _copy(opened, info, temporary / PurePosixPath(info.filename).name)
                    task.advance()
            temporary.rename(folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


class _Wrong(Exception):  # noqa: N818 - becomes the error that the user sees
    """The archive is not the one that is meant."""


@contextmanager
def _opened(archive: Path) -> Iterator[zipfile.ZipFile]:
    """The archive; if it turns out to be damaged or another, it is deleted, so that it can be fetched again."""
    try:
        with zipfile.ZipFile(archive) as opened:
            yield opened
    except (_Wrong, RefusedPath, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        archive.unlink(missing_ok=True)
        said = " ".join(str(error).split()) or type(error).__name__
        raise BenchError(f"{archive.name} is not the archive that is meant: {said}", _AGAIN) from error


def _files(opened: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """Entries that are files; `_Wrong` where one is a link."""
    found = []
    for info in opened.infolist():
        if stat.S_ISLNK(info.external_attr >> 16):
            raise _Wrong(f"{info.filename!a} is a link")
        if not info.is_dir():
            found.append(info)
    return found


def _copy(opened: zipfile.ZipFile, info: zipfile.ZipInfo, target: Path) -> None:
    with opened.open(info) as inside:
        try:
            with target.open("wb") as file:
                shutil.copyfileobj(inside, file, _PIECE)
        except OSError as error:
            raise BenchError(
                f"{target} cannot be written: {reason(error)}",
                "make room, or name another folder with --to FOLDER; the same command continues where it stopped",
            ) from error
