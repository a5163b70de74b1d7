"""What a command writes: to the terminal or to what an option names, and the one rule of what may be replaced.

A parameter that names something to write is marked by `OutFile` or `OutFolder`, beside its `typer.Option`. Whatever
else is typed is taken for what the command reads, so that no list of inputs can be forgotten. Whatever cannot be
written is one error that names the option.
"""

from __future__ import annotations

import errno
import functools
import inspect
import io
import os
import re
import stat
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer

from harness.cli.errors import shown_name
from harness.utils.errors import BenchError
from results.text import printable

if TYPE_CHECKING:
    from rich.console import Console

FILE_COLUMNS = 80
Out = functools.partial(typer.Option, "--out", "-o")
_Force = Annotated[
    bool, typer.Option("--force", help="Replace a text file that is no earlier version of what is written.")
]
_DATABASE = "bench.sqlite"
_KEPT = {_DATABASE: "the results", "tuning": "the trials", "runs": "the runs", "cache": "the cache"}
_BESIDE = re.compile(r"-(wal|shm|journal)$")  # what SQLite has beside a database, and reads as a part of it
_BETWEEN = re.compile(r"\bsqlite[\w+]*:///(?:file:)?|\bfile:(?://)?|\bhf:|[,=?]")
"""What is before or between the paths of a value, as in `hf:FOLDER,NAME` or `sqlite:///FILE`."""
_BEGINNING = 4096  # bytes


@dataclass(frozen=True, slots=True)
class OutFile:
    """Marks a parameter that names a file to write; without the parameter `only_with`, nothing is written.

    `begins` is a regular expression, how every such file begins: one that is there is then an earlier version, and
    replaced. None where the command itself sees to that.
    """

    begins: bytes | None = None
    only_with: str | None = None


@dataclass(frozen=True, slots=True)
class OutFolder(OutFile):
    """Marks a folder to write into, `whole` where it is replaced as such; `begins` is of the files in it."""

    whole: bool = False


@dataclass(frozen=True, slots=True)
class Running:
    """The command that runs: its `outputs`, and the paths that its options and arguments name, outputs too."""

    outputs: Mapping[str, OutFile]
    named: Mapping[str, tuple[Path, ...]]
    force: bool


running: ContextVar[Running | None] = ContextVar("running", default=None)


def paths_in(value: object) -> Iterator[Path]:
    """Every file or folder that the value of an option may name."""
    if isinstance(value, list | tuple):
        for each in value:
            yield from paths_in(each)
    elif isinstance(value, str | Path):
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
    """What of which workspace lies, or would lie, here."""
    known = {Path(os.path.realpath(each)) for each in workspaces}
    for folder in place.parents:
        if folder in known or (folder / _DATABASE).is_file():
            first = _BESIDE.sub("", place.relative_to(folder).parts[0])
            if first in _KEPT:
                return f"{_KEPT[first]} of the workspace {folder}"
    return None


def _is_same(place: Path, named: Path) -> bool:
    """Whether a file is the one that is named, by whatever link, or belongs to this database."""
    owner = Path(_BESIDE.sub("", str(place)))
    return named.is_file() and any(each.exists() and each.samefile(named) for each in {place, owner})


def _is_in(path: Path, folder: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def checked(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose marked parameters are checked before it begins, with `--force` where it may replace files.

    Typer reads its signature. A command without marked parameters is given back as it is.
    """
    hints = get_type_hints(command, include_extras=True)
    outputs = {name: mark for name, hint in hints.items() for mark in get_args(hint) if isinstance(mark, OutFile)}
    if not outputs:
        return command
    words = {name for name, hint in hints.items() if get_origin((get_args(hint) or (hint,))[0]) is Literal}
    parameters = {
        name: parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name])
        for name, parameter in inspect.signature(command).parameters.items()
    }
    own = {"context": inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)}
    if any(mark.begins is not None for mark in outputs.values()):
        own["force"] = inspect.Parameter("force", inspect.Parameter.KEYWORD_ONLY, annotation=_Force, default=False)
    taken = parameters.keys()
    parameters = parameters | {name: each for name, each in own.items() if name not in taken}

    @functools.wraps(command)
    def run(**given: Any) -> None:
        context = given["context"]
        names = {parameter.name: shown_name(parameter) for parameter in context.command.params}
        typed = {name for name in names if context.get_parameter_source(name).name != "DEFAULT"}
        named = {names[name]: tuple(paths_in(given[name])) for name in names.keys() & {*typed, "workspace"} - words}
        marks = {names[name]: mark for name, mark in outputs.items()}
        before = running.set(Running(marks, named, given.get("force", False)))
        try:
            for name, mark in outputs.items():
                if given[name] is not None and (mark.only_with is None or given[mark.only_with]):
                    check_out(given[name], names[name], folder=isinstance(mark, OutFolder))
            command(**{name: value for name, value in given.items() if name in taken})
        finally:
            running.reset(before)

    run.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    run.__annotations__ = {name: parameter.annotation for name, parameter in parameters.items()}
    return run


def check_out(out: Path | None, option: str = "--out", *, folder: bool = False) -> None:
    """BenchError, before any work, where a file or folder cannot be written, or would replace something else."""
    if out is None:
        return
    mode = _mode(out, option)
    if mode is None:  # the nearest parent that is there
        found = ((parent, _mode(parent, option)) for parent in out.absolute().parents)
        parent, kind = next((parent, kind) for parent, kind in found if kind is not None)
        if not stat.S_ISDIR(kind):
            raise BenchError(f"cannot write {option} {out}: {parent} is not a folder", "name another place")
    elif folder and not stat.S_ISDIR(mode):
        raise BenchError(f"{option} {out} is not a folder", "name a folder, or one that does not exist yet")
    elif not folder and (stat.S_ISDIR(mode) or stat.S_ISBLK(mode) or stat.S_ISSOCK(mode)):
        kinds = {stat.S_IFDIR: "a folder", stat.S_IFBLK: "a block device, which is never written to"}
        raise BenchError(f"{option} {out} is {kinds.get(stat.S_IFMT(mode), 'a socket')}", "name a file")
    if folder or mode is None or stat.S_ISREG(mode):
        with write_errors(out, option):
            refuse_loss(out, option, folder=folder)


@contextmanager
def write_errors(path: Path, option: str = "--out") -> Iterator[None]:
    """Turn the system's errors into a BenchError that names the option."""
    try:
        yield
    except OSError as error:
        raise _unwritable(path, option, error) from error


def echo(text: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a text on standard output, or standard error; names of data are shown and not obeyed by a terminal."""
    typer.echo(printable(str(text)), err=err, nl=nl)


def deliver(findings: str | Callable[[Console], None], out: Path | None, option: str = "--out") -> None:
    """Print a text or what a function prints; with `out`, write that file instead, whole or not at all.

    Links are followed. A device or a pipe, as /dev/stdout, is written into and stays what it is.
    """
    from rich.console import Console

    from harness.utils.atomic import write_text

    if out is None:
        if isinstance(findings, str):
            sys.stdout.write(printable(findings))
        else:
            findings(Console(highlight=False))
        return
    if not isinstance(findings, str):
        text = io.StringIO()
        findings(Console(file=text, width=FILE_COLUMNS, highlight=False))
        findings = text.getvalue()
    check_out(out, option)
    mode = _mode(out, option)
    with write_errors(out, option):
        if mode is None or not (stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)):
            write_text(out, findings)
            return
        # A pipe that nothing reads is an error, instead of a wait for ever.
        descriptor = os.open(out, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
        os.set_blocking(descriptor, True)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(findings)


def _mode(path: Path, option: str) -> int | None:
    """What a path is, as `stat` tells; None where nothing is there, and it may be made."""
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):  # parents are looked at one by one
        return None
    except (OSError, ValueError) as error:  # a name that is too long, a loop of links, a zero byte
        raise _unwritable(path, option, error) from error


def _unwritable(path: Path, option: str, error: OSError | ValueError) -> BenchError:
    reason, hint = getattr(error, "strerror", None) or str(error), "name another file"
    if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
        hint = "free some space, or name a file on another disk"
    elif isinstance(error, OSError) and error.errno == errno.ENXIO:
        reason, hint = "nothing reads from it", "start the program that reads the pipe first, or name a file"
    return BenchError(f"cannot write {option} {path}: {reason}", hint)


TableFormat = Literal["table", "markdown", "csv", "latex"]


def format_table(header: Sequence[str], rows: Sequence[Sequence[str]], form: TableFormat, texts: int = 1) -> str:
    """A table, of booktabs for `latex`, that ends with a line break: columns of texts, the others of numbers."""
    from reports.text.grid import Grid

    grid = Grid(header, rows, texts)
    return {"table": grid.terminal, "markdown": grid.markdown, "csv": grid.csv, "latex": grid.latex}[form]()


def print_notes(notes: Iterable[str], form: TableFormat, lead: str = "") -> None:
    """Print each note as a paragraph after `lead`; as comments for LaTeX, and not at all for CSV."""
    if form == "csv":
        return
    start, lead = ("% ", "") if form == "latex" else ("", lead)
    for note in notes:
        echo(lead + textwrap.fill(note, 79, initial_indent=start, subsequent_indent=start))
