"""A run as one zip (`bench export run`), as `bench run` reads it: nothing of it is extracted or executed."""

from __future__ import annotations

import json
import stat
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harness.config.experiment import LONGEST, is_run
from harness.utils.errors import BenchError
from harness.utils.files import RefusedPath, plain_path, reason, shortened
from harness.utils.yaml_value import load_bounded

RUN: Final = "run.yaml"
VERSIONS: Final = "versions.json"
SCORES: Final = "scores.json"
PLUGINS: Final = "plugins"
_LARGEST: Final = 64 * 2**20  # bytes of a member that is read
_HINT: Final = "name a zip that `bench export run KEY` wrote"


@dataclass(frozen=True, slots=True)
class RunArchive:
    """What a run's zip says: the key that the run had, its configuration and scores, and the files of its plug-ins.

    `scores` are values by split, domain and metric; None if one was not measured.
    """

    key: str
    content: dict[str, Any]
    scores: dict[tuple[str, str, str], float | None]
    plugins: tuple[str, ...]


def is_archive(path: Path) -> bool:
    """Whether a file begins as a zip does."""
    try:
        return path.is_file() and zipfile.is_zipfile(path)
    except OSError:
        return False


def read_archive(path: Path) -> RunArchive:
    """Read a run's zip.

    Raises:
        BenchError: it is damaged or none of a run's, or names a file outside itself.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            _check_names(path, archive)
            content = load_bounded(_text(path, archive, RUN), longest=LONGEST)
            versions = json.loads(_text(path, archive, VERSIONS))
            stored = json.loads(_text(path, archive, SCORES))
            plugins = tuple(name for name in archive.namelist() if name.startswith(f"{PLUGINS}/"))
            scores = {
                (row["split"], row["domain"], row["metric"]): None if row["value"] is None else float(row["value"])
                for row in stored["scores"]
            }
            key = str(versions["key"])
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile, RuntimeError) as error:
        raise BenchError(f"{path} cannot be read as a run: {reason(error)}", _HINT) from error
    if not isinstance(content, dict) or not is_run(content):
        raise BenchError(f"{path}: its {RUN} is no configuration of a run", _HINT)
    return RunArchive(key, content, scores, plugins)


def _check_names(path: Path, archive: zipfile.ZipFile) -> None:
    """BenchError for members that would be written outside the folder that a zip is unpacked to, or over each other."""
    names = archive.namelist()
    for info in archive.infolist():
        try:
            plain_path(info.filename)
        except RefusedPath as error:
            raise BenchError(f"{path} is refused: {error}".replace("the data set's", "its"), _HINT) from error
        if stat.S_ISLNK(info.external_attr >> 16):
            raise BenchError(f"{path} is refused: {shortened(info.filename)} is a link", _HINT)
    if len(set(names)) < len(names):
        raise BenchError(f"{path} is refused: it has two files of one name", _HINT)


def _text(path: Path, archive: zipfile.ZipFile, name: str) -> str:
    if name not in archive.namelist():
        raise BenchError(f"{path} has no {name}", _HINT)
    if archive.getinfo(name).file_size > _LARGEST:
        raise BenchError(f"{path}: {name} is larger than {_LARGEST // 2**20} MiB", _HINT)
    return archive.read(name).decode()
