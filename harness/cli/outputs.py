"""What the command that runs writes, and the one rule of what this may replace.

A parameter that names something to write is marked by `OutFile` or `OutFolder`, beside its `typer.Option`. Whatever
else is typed is taken for what the command reads, so that no list of inputs can be forgotten.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from harness.utils.errors import BenchError

_DATABASES = {"bench.sqlite": "the results", "tuning.sqlite": "the trials"}
_KEPT = _DATABASES | {"tuning": "the trials", "runs": "the runs", "cache": "the cache"}
"""What is in a workspace, and not for other files."""
_BESIDE = re.compile(r"-(wal|shm|journal)$")
"""What SQLite has beside a database, and reads as a part of it."""
_BETWEEN = re.compile(r"\bsqlite[\w+]*:///(?:file:)?|\bfile:(?://)?|\bhf:|[,=?]")
"""What is before or between the paths of a value, as in `hf:FOLDER,NAME` or `sqlite:///FILE`."""
_BEGINNING = 4096  # bytes


@dataclass(frozen=True, slots=True)
class OutFile:
    """Marks a parameter that names a file to write.

    Attributes:
        begins: a regular expression, how every such file begins: one that is there is then an earlier version, and
            replaced. None where the command itself sees to that.
        only_with: the parameter without which nothing is written.
    """

    begins: bytes | None = None
    only_with: str | None = None


@dataclass(frozen=True, slots=True)
class OutFolder(OutFile):
    """Marks a parameter that names a folder to write into; `begins` is of the files in it.

    Attributes:
        whole: the folder is replaced as a whole, and so must not hold what the command reads.
    """

    whole: bool = False


@dataclass(frozen=True, slots=True)
class Running:
    """The command that runs.

    Attributes:
        outputs: by the names of their options.
        named: the files and folders that each option or argument names, outputs too.
        force: whether --force was given.
    """

    outputs: Mapping[str, OutFile]
    named: Mapping[str, tuple[Path, ...]]
    force: bool


running: ContextVar[Running | None] = ContextVar("running", default=None)


def paths_in(value: object) -> Iterator[Path]:
    """Every file or folder that the value of an option may name."""
    if isinstance(value, list | tuple):
        for each in value:
            yield from paths_in(each)
    elif isinstance(value, str | Path) and not isinstance(value, Enum):
        text = str(value)
        for part in dict.fromkeys((text, *_BETWEEN.split(text))):
            with suppress(OSError, RuntimeError, ValueError):  # a text, or the home folder of nobody
                path = Path(part).expanduser()
                if part.strip() and path.exists():
                    yield path


def refuse_loss(path: Path, option: str, *, folder: bool = False) -> None:
    """BenchError where a file or a folder, written for this option, would replace what is something else.

    What a command reads, what a workspace keeps, and binary files are never replaced; other files where they begin as
    what is written, or are empty, or by --force.
    """
    command = running.get()
    if command is None:
        return
    mark, place = command.outputs.get(option, OutFile()), Path(os.path.realpath(path))
    elsewhere = f"name another place: {option} {'FOLDER' if isinstance(mark, OutFolder) else 'FILE'}"
    others = [(name, each) for name, paths in command.named.items() if name != option for each in paths]
    if kept := _kept(place, [each for name, each in others if name == "--workspace"]):
        raise BenchError(f"{option} {path} is among {kept}", elsewhere)
    for name, each in others:
        if _is_same(place, each) or (isinstance(mark, OutFolder) and mark.whole and _is_in(each, place)):
            raise BenchError(f"{option} {path} would replace {each}, which {name} names", elsewhere)
    if folder or mark.begins is None or not place.is_file():
        return
    with place.open("rb") as file:
        beginning = file.read(_BEGINNING)
    if not beginning or re.match(mark.begins, beginning):
        return
    said = f"{option} {path} is there, and no earlier version of what is written"
    readers = [name for name, each in others if name != "--workspace" and each.is_dir() and _is_in(place, each)]
    if readers:
        raise BenchError(f"{said}: it is in the folder that {readers[0]} names", elsewhere)
    if b"\0" in beginning:
        raise BenchError(f"{said}: it is a binary file", elsewhere)
    if not command.force:
        raise BenchError(said, f"{elsewhere}; or replace it: add --force")


def _kept(place: Path, workspaces: list[Path]) -> str | None:
    """What of which workspace lies, or would lie, at this place."""
    known = {Path(os.path.realpath(each)) for each in workspaces}
    for folder in place.parents:
        if folder in known or any((folder / name).is_file() for name in _DATABASES):
            first = _BESIDE.sub("", place.relative_to(folder).parts[0])
            if first in _KEPT:
                return f"{_KEPT[first]} of the workspace {folder}"
    return None


def _is_same(place: Path, named: Path) -> bool:
    """Whether a file is the one that is named, by whatever link, or belongs to this database."""
    owner = Path(_BESIDE.sub("", str(place)))
    return named.is_file() and any(each.exists() and each.samefile(named) for each in {place, owner})


def _is_in(path: Path, folder: Path) -> bool:
    """Whether a path lies below a folder, or is it."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))
