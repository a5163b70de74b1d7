"""A CSV of pictures and captions, a caption a line."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from harness.data.convert.source import Picture, Source
from harness.utils.errors import BenchError
from harness.utils.files import reason, shortened
from results.files import read_text

FILE_COLUMNS = ("file", "file_name", "filename", "image", "image_name")
CAPTION_COLUMNS = ("caption", "text", "comment", "sentence", "raw")
_DELIMITERS = ",;\t|"


def read_table(path: Path, file_column: str | None, caption_column: str | None) -> Source:
    """The pictures of a CSV, of a header and a line a caption; the column `split` is read where there is one.

    The delimiter is that of comma, semicolon, tab and | which the header has most of.

    Raises:
        BenchError: it cannot be read, lacks a column, or has one of two columns of the same name.
    """
    try:
        text = read_text(path).removeprefix("\ufeff")
    except OSError as error:
        raise BenchError(f"{path} cannot be read: {reason(error)}") from error
    delimiter = max(_DELIMITERS, key=text.partition("\n")[0].count)
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True, strict=True)
    source = Source()
    by_file: dict[str, Picture] = {}
    try:
        names = [name.strip() for name in next(rows, [])]
        if twice := [name for name, count in Counter(names).items() if name and count > 1]:
            raise BenchError(
                f"{path} has several columns {shortened(repr(twice[0]))}",
                "give each column of its first line a name of its own",
            )
        file_at = _column(path, names, file_column, FILE_COLUMNS, "--file-column")
        caption_at = _column(path, names, caption_column, CAPTION_COLUMNS, "--caption-column")
        split_at = names.index("split") if "split" in names else None
        for row in rows:
            if not row:
                continue
            if len(row) != len(names) or not row[file_at].strip():
                source.complain("lines with another number of fields, or no file", f"line {rows.line_num}")
                continue
            file = row[file_at].strip()
            picture = by_file.get(file)
            if picture is None:
                picture = by_file[file] = Picture(file)
                source.pictures.append(picture)
            picture.captions.append(row[caption_at])
            if split_at is not None and row[split_at].strip():
                source.set_split(picture, row[split_at], f"line {rows.line_num}")
    except csv.Error as error:
        raise BenchError(f"{path}, line {rows.line_num}: {error}", "quote fields that hold the delimiter") from error
    return source


def _column(path: Path, names: list[str], chosen: str | None, known: Sequence[str], option: str) -> int:
    wanted = [chosen] if chosen is not None else [name for name in known if name in names]
    if wanted and wanted[0] in names:
        return names.index(wanted[0])
    told = ", ".join(names)[:200] or "none"
    raise BenchError(
        f"{path} has no column {chosen or ' or '.join(known[:2])}: its first line names {told}",
        f"name the column: {option} NAME",
    )
