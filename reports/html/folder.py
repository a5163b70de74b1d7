"""Replacing a report folder as a whole, so that a reader never sees half of a new one or pages of an old one."""

from __future__ import annotations

import fcntl
import glob
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from reports.errors import ReportError

MARKER = ".captionbench-report"
"""Makes a folder a report, and lists the files that were written into it."""


@contextmanager
def replaced(folder: Path) -> Iterator[Path]:
    """Give an empty folder beside `folder` to write into, and put it in `folder`'s place once it is complete.

    When the block raises, `folder` stays as it was. Only a report, an empty folder or nothing is ever replaced; files
    that were put into a report by others stay in it.

    Raises:
        ReportError: the folder holds something else, or cannot be written.
    """
    folder = folder.absolute()
    _refuse_foreign(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(folder)
        work = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        held = os.open(work, os.O_RDONLY)
    except OSError as error:
        raise _unwritable(folder, error) from error
    try:
        fcntl.flock(held, fcntl.LOCK_EX)  # before there is anything in it: see `_remove_abandoned`
        new = work / "new"
        new.mkdir()
        yield new
        lines = ["Written by bench report, which replaces this folder, but files of other names.", *sorted(_files(new))]
        _keep_foreign(folder, new)
        (new / MARKER).write_text("\n".join(lines) + "\n", encoding="utf-8")
        _swap(new, folder, work / "old")
    except OSError as error:
        raise _unwritable(folder, error) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)
        os.close(held)


def _remove_abandoned(folder: Path) -> None:
    """Remove what commands that were killed had begun to write for `folder`; whoever is still at it holds a lock.

    A report that was moved aside, and not yet replaced when the command was killed, is put back.
    """
    for work in folder.parent.glob(f".{glob.escape(folder.name)}-*"):
        if not (work / "new").is_dir() and not (work / "old").is_dir():
            continue
        held = os.open(work, os.O_RDONLY)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue
        else:
            if (work / "old").is_dir() and not folder.exists():
                (work / "old").rename(folder)
            shutil.rmtree(work, ignore_errors=True)
        finally:
            os.close(held)


def _refuse_foreign(folder: Path) -> None:
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise ReportError(f"{folder} is not a folder", "choose another with --out DIR")
    if folder.is_dir() and not (folder / MARKER).is_file() and any(folder.iterdir()):
        raise ReportError(
            f"{folder} holds files that are not a report; writing one would delete them",
            "choose a new or empty folder with --out DIR",
        )


def _files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_symlink() or path.is_file()}


def _keep_foreign(folder: Path, new: Path) -> None:
    """Copy what the report in `folder` does not list as its own; that of an earlier release lists nothing."""
    marker = folder / MARKER
    own = marker.read_text(encoding="utf-8").splitlines()[1:] if marker.is_file() else []
    if not own:
        return
    for name in sorted(_files(folder) - {MARKER, *own} - _files(new)):
        (new / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(folder / name, new / name, follow_symlinks=False)


def _swap(new: Path, folder: Path, old: Path) -> None:
    """Move the old folder aside and the new one in; put the old one back if that fails."""
    new.chmod(0o755)
    if not folder.exists():
        new.replace(folder)
        return
    folder.replace(old)
    try:
        new.replace(folder)
    except OSError:
        old.replace(folder)
        raise


def _unwritable(folder: Path, error: OSError) -> ReportError:
    return ReportError(f"cannot write the report {folder}: {error.strerror or error}", "choose another with --out DIR")
