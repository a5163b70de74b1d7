"""What a command writes: to the terminal or to what an option names, and the one rule of what may be replaced.

A workspace's own files are rewritten freely, and so are files in a folder whose manifest lists them. Any other file
that exists is replaced by `--force` alone, and never what the same command reads.
"""

from __future__ import annotations

import errno
import functools
import io
import os
import stat
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from harness.utils.errors import BenchError
from harness.utils.files import expanded
from results.text import printable

if TYPE_CHECKING:
    from rich.console import Console

FILE_COLUMNS = 80
Out = functools.partial(typer.Option, "--out", "-o")
ForceOption = Annotated[bool, typer.Option("--force", help="Replace files that exist.")]
MANIFEST = ".captionbench-files"
_OF_SQLITE = ("-wal", "-shm", "-journal")  # what SQLite has beside a database, and reads as a part of it


def check_out(
    out: Path | None, option: str = "--out", *, force: bool = False, inputs: Iterable[str | Path | None] = ()
) -> None:
    """BenchError, before any work, where a file cannot be written or must not be replaced.

    Args:
        inputs: what the same command reads, which `force` does not replace either.
    """
    if out is None:
        return
    mode = _mode(out, option)
    if mode is None:
        _check_parent(out, option)
    elif stat.S_ISDIR(mode) or stat.S_ISBLK(mode) or stat.S_ISSOCK(mode):
        kinds = {stat.S_IFDIR: "a folder", stat.S_IFBLK: "a block device, which is never written to"}
        raise BenchError(f"{option} {out} is {kinds.get(stat.S_IFMT(mode), 'a socket')}", "name a file")
    elif stat.S_ISREG(mode):
        for path in _existing(inputs):
            replaced = out if path.is_file() else out.resolve().parent  # of a folder any file may be read
            if path.samefile(replaced):
                raise BenchError(f"{option} {out} would replace what is read of {path}", f"name another: {option} FILE")
        if not force and out.stat().st_size > 0:
            raise BenchError(f"{option} {out} exists", "name another file, or replace it: add --force")


def _existing(inputs: Iterable[str | Path | None]) -> Iterator[Path]:
    """The files and folders among the inputs, and what belongs to those that are databases."""
    for name in inputs:
        if name is None:
            continue
        path = expanded(str(name).removeprefix("sqlite:///"))
        files = [path]
        if path.name:
            files += [path.with_name(path.name + ending) for ending in _OF_SQLITE]
        for file in files:
            if file.exists():
                yield file


def _check_parent(out: Path, option: str) -> None:
    """BenchError if the nearest parent that exists is no folder."""
    for parent in out.absolute().parents:
        mode = _mode(parent, option)
        if mode is None:
            continue
        if not stat.S_ISDIR(mode):
            raise BenchError(f"cannot write {option} {out}: {parent} is not a folder", "name another path")
        return


def check_folder(out: Path, option: str = "--out", *, inputs: Iterable[str | Path | None] = ()) -> None:
    """BenchError, before any work, where no folder can be written, or files that the command reads lie in it."""
    mode = _mode(out, option)
    if mode is None:
        _check_parent(out, option)
    elif not stat.S_ISDIR(mode):
        raise BenchError(f"{option} {out} is not a folder", "name a folder, or one that does not exist yet")
    for path in _existing(inputs):
        if path.is_file() and path.resolve().is_relative_to(out.resolve()):
            raise BenchError(f"{option} {out} has {path}, which is read", f"name another folder: {option} FOLDER")


class OutputFolder:
    """A folder that a command writes files into; its manifest lists them, so that they may be rewritten.

    Args:
        path: the folder, which need not exist.
        force: whether files that are not of the manifest may be replaced, too.
        inputs: what the same command reads.
    """

    def __init__(
        self,
        path: Path,
        option: str = "--out",
        *,
        force: bool = False,
        inputs: Iterable[str | Path | None] = (),
    ) -> None:
        check_folder(path, option)
        self.path = path
        self._option = option
        self._force = force
        self._inputs = tuple(inputs)
        self._listed: set[str] = set()
        manifest = path / MANIFEST
        if manifest.is_file():
            self._listed.update(manifest.read_text(encoding="utf-8").splitlines())

    def check(self, name: str) -> Path:
        """The path of a file that may be written; BenchError otherwise."""
        path = self.path / name
        force = self._force or (name in self._listed and not path.is_symlink())
        check_out(path, self._option, force=force, inputs=self._inputs)
        return path

    def record(self, name: str) -> None:
        """List a file that was written in the manifest."""
        from harness.utils.atomic import write_text

        self._listed.add(name)
        with write_errors(self.path, self._option):
            write_text(self.path / MANIFEST, "".join(f"{file}\n" for file in sorted(self._listed)))


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
    """What a path is, as `stat` tells; None if nothing is there, and it may be made."""
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):  # parents are looked at one by one
        return None
    except (OSError, ValueError) as error:  # a name that is too long, a loop of links, a zero byte
        raise _unwritable(path, option, error) from error


def _unwritable(path: Path, option: str, error: OSError | ValueError) -> BenchError:
    reason = getattr(error, "strerror", None) or str(error)
    hint = "name another file"
    if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
        hint = "free some space, or name a file on another disk"
    elif isinstance(error, OSError) and error.errno == errno.ENXIO:
        reason = "nothing reads from it"
        hint = "start the program that reads the pipe first, or name a file"
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
