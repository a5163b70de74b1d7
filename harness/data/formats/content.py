"""The content of a file or folder, read once, by which formats are recognised: JSON, JSON lines, text or a table."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from harness.data.formats.table import TextTable, parse_table
from harness.data.formats.text import decode, lines_of
from harness.utils.errors import BenchError
from harness.utils.files import shortened
from harness.utils.json_io import parse_json_or_lines, read_file

JSON_ENDINGS: Final = (".json", ".jsonl")
_SHOWN: Final = 8
_SHOWN_VALUES: Final = 3
_ZIP: Final = "a zip archive or a spreadsheet"
_TAR: Final = "a tar archive"
_ARCHIVES: Final = (
    (b"PAR1", 0, "a parquet file"),
    (b"PK\x03\x04", 0, _ZIP),
    (b"ustar", 257, _TAR),
    (b"\x80", 0, "a pickle of Python"),
    (b"\x93NUMPY", 0, "an array of numpy"),
    (b"\x89HDF", 0, "an HDF5 file"),
    (b"\xd0\xcf\x11\xe0", 0, "a spreadsheet of old Excel"),
    (b"1AY&SY", 4, "compressed by bzip2"),
    (b"\xfd7zXZ", 0, "compressed by xz"),
    (b"(\xb5/\xfd", 0, "compressed by zstd"),
    (b"7z\xbc\xaf", 0, "a 7z archive"),
    (b"Rar!", 0, "a RAR archive"),
)
_ARCHIVE_ENDINGS: Final = (".tar", ".zip", ".xlsx", ".ods")


class _NoJson:
    """Marks content that is not JSON, whose value may itself be None."""


NO_JSON: Final = _NoJson()


@dataclass(frozen=True)
class Content:
    """The content of a path.

    Attributes:
        value: of JSON, or the list of the values of JSON lines; `NO_JSON` elsewhere.
        text: of other files; "" of JSON, of a folder and of an archive.
        archive: what an archive is, such as "a zip archive"; "" elsewhere.
    """

    path: Path
    value: Any = NO_JSON
    text: str = ""
    archive: str = ""

    @property
    def is_json(self) -> bool:
        return self.value is not NO_JSON

    @cached_property
    def is_folder(self) -> bool:
        return self.path.is_dir()

    @cached_property
    def table(self) -> TextTable | None:
        """The text as a table with headings; None without text or with a single column."""
        if not self.text.strip():
            return None
        table = parse_table(self.text, self.path)
        return table if len(table.headings) > 1 else None

    @cached_property
    def headings(self) -> list[str]:
        """The table's headings in lower case; empty if there is no table."""
        return [] if self.table is None else [name.lower() for name in self.table.headings]

    @cached_property
    def lines(self) -> list[str]:
        """The lines of a text that are not blank."""
        return [line for line in lines_of(self.text) if line.strip()]

    @cached_property
    def entries(self) -> list[dict[str, Any]]:
        """The value if it is a list of objects; otherwise an empty list."""
        value = self.value
        if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
            return []
        return value

    @property
    def first(self) -> dict[str, Any]:
        """The first of `entries`; an empty object where there are none."""
        return self.entries[0] if self.entries else {}

    @property
    def top(self) -> dict[str, Any]:
        """The value if it is an object; otherwise an empty one."""
        return self.value if isinstance(self.value, dict) else {}


def read_content(path: Path) -> Content:
    """Read a file in UTF-8 or UTF-16, gzipped or not; the content of folders and archives is not read.

    Raises:
        BenchError: there is no such file, it is in another encoding, or it is called .json and is none.
    """
    if path.is_dir():
        return Content(path)
    if archive := _archive(path):
        return Content(path, archive=archive)
    text = decode(read_file(path), path)
    name = path.name.removesuffix(".gz").lower()
    if not name.endswith(JSON_ENDINGS) and not text.lstrip().startswith(("{", "[")):
        return Content(path, text=text)
    try:
        return Content(path, parse_json_or_lines(text.encode(), path))
    except BenchError:
        if name.endswith(JSON_ENDINGS):
            raise
        return Content(path, text=text)


def _archive(path: Path) -> str:
    if not path.is_file():  # a pipe would be waited for
        return ""
    try:
        with path.open("rb") as file:
            start = file.read(512)
    except OSError:
        return ""  # `read_file` says why
    return next((name for magic, offset, name in _ARCHIVES if start[offset : offset + len(magic)] == magic), "")


def refuse_archives(content: Content) -> None:
    """Raise BenchError with the command to unpack it for an archive or a folder of archives."""
    if content.is_folder:
        files = sorted(path for pattern in ("*", "*/*") for path in content.path.glob(pattern) if path.is_file())
        archives = [path for path in files if path.suffix.lower() in _ARCHIVE_ENDINGS]
        if not archives:
            return
        file = archives[0]
        title = f"{content.path} holds {file.name}, which is"
    elif content.archive:
        file = content.path
        title = f"{file} is"
    else:
        return
    archive = _archive(file)
    ending = file.suffix.lower()
    if archive == _ZIP and ending in (".xlsx", ".ods"):
        raise BenchError(f"{title} a spreadsheet ({ending[1:]}), which is not read", "save it as CSV, and give that")
    if archive == _ZIP:
        raise BenchError(
            f"{title} a zip archive, which is not read",
            f"unpack it: unzip {shlex.quote(str(file))} -d FOLDER, then: bench data convert FOLDER",
        )
    if archive == _TAR:
        raise BenchError(
            f"{title} a tar archive (webdataset), which is not read",
            f"unpack each into one folder: mkdir -p pictures; tar xf {shlex.quote(str(file))} -C pictures/; "
            "these are pictures with a .txt each: bench data convert pictures/",
        )


def describe(content: Content) -> str:
    """A description of content in no known format, for an error: its keys or columns, and the first values."""
    if content.is_folder:
        names = sorted(path.name for path in content.path.iterdir())
        return f"a folder with {_listed(names) or 'nothing'}"
    if content.archive:
        return content.archive
    if content.top:
        examples = [f"{name} ({_short(value)})" for name, value in list(content.top.items())[:_SHOWN_VALUES]]
        return f"a JSON object with {_listed(list(content.top))}, such as {', '.join(examples)}"
    if content.first:
        examples = [f"{name} ({_short(value)})" for name, value in content.first.items()]
        return f"a list of {len(content.entries):,} objects with {', '.join(examples[:_SHOWN])}"
    if content.is_json:
        return f"JSON: {_short(content.value)}"
    if content.table is not None:
        row = content.table.rows[0].cells if content.table.rows else []
        cells = ", ".join(_short(cell) for cell in row[:_SHOWN_VALUES]) or "no rows"
        return f"a table whose first line is {_listed(content.table.headings)}, and its second {cells}"
    examples = [_short(line) for line in content.lines[:_SHOWN_VALUES]]
    return f"a text of {len(content.lines):,} lines: {', '.join(examples)}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(shortened(str(name), 40) for name in names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")


def _short(value: object) -> str:
    return shortened(str(value), 40)
