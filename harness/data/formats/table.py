"""Tables of captions: CSV, TSV and their like."""

import ast
import csv
import io
import json
import re
import tokenize
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from harness.data.formats.text import read_encoded
from harness.utils.errors import BenchError

ENDINGS: Final = (".csv", ".tsv", ".txt", ".psv")
METADATA: Final = "metadata.jsonl"
"""The table of an imagefolder of the Hugging Face Hub."""
DELIMITERS: Final = ",\t;|"
_FILE: Final = re.compile(r"\S+\.\w{2,4}")
_UNQUOTED: Final = "\t|"
"""Delimiters of files whose quotation marks are usually part of the text."""


@dataclass(frozen=True, slots=True)
class TableRow:
    """The cells of one row, and the number of its last line in the file."""

    cells: list[str]
    line: int


@dataclass(frozen=True, slots=True)
class TextTable:
    """The headings and the rows of a file; rows may have another number of cells than there are headings."""

    path: Path
    headings: list[str]
    rows: list[TableRow]
    delimiter: str


def read_table(path: Path) -> TextTable:
    """As `parse_table`, of a file; BenchError also if it cannot be read."""
    return parse_table(read_encoded(path), path)


def parse_table(text: str, path: Path) -> TextTable:
    """The rows of a text by the delimiter that its first line has most of; tabs in a file that is called .tsv.

    Tabs and bars are read without quoting, unless quotation marks enclose whole cells.

    Raises:
        BenchError: a quotation mark joins lines that look like rows.
    """
    first = text.partition("\n")[0]
    is_tsv = path.name.lower().removesuffix(".gz").endswith(".tsv") and "\t" in first
    delimiter = "\t" if is_tsv else max(DELIMITERS, key=first.count)
    quoting = True
    if delimiter in _UNQUOTED:
        quoting = _quotes_whole_cells(text, delimiter)
    rows: list[TableRow] = []
    reader = _reader(text, delimiter, quoting=quoting)
    try:
        headings = [name.strip() for name in next(reader, [])]
        for cells in reader:
            if cells:
                _refuse_joined_lines(path, cells, delimiter, len(headings), reader.line_num)
                rows.append(TableRow(cells, reader.line_num))
    except csv.Error as error:
        raise BenchError(
            f"{path}, line {reader.line_num}: {error}",
            "quote cells that hold the delimiter, and double the quotation marks within them",
        ) from error
    return TextTable(path, headings, rows, delimiter)


def _reader(text: str, delimiter: str, *, quoting: bool) -> Any:
    return csv.reader(
        io.StringIO(text, newline=""),
        delimiter=delimiter,
        skipinitialspace=delimiter in ",|",
        strict=True,
        quoting=csv.QUOTE_MINIMAL if quoting else csv.QUOTE_NONE,
    )


def _quotes_whole_cells(text: str, delimiter: str) -> bool:
    """Whether quotation marks enclose cells: if so, each line has as many cells as the first."""
    try:
        rows = [cells for cells in _reader(text, delimiter, quoting=True) if cells]
    except csv.Error:
        return False
    return all(len(cells) == len(rows[0]) and not any("\n" in cell for cell in cells) for cells in rows)


def _refuse_joined_lines(path: Path, cells: list[str], delimiter: str, columns: int, line: int) -> None:
    """BenchError if a cell holds lines that look like rows: a stray quotation mark has joined them.

    A row has as many cells as there are columns, and the first of them, or a file at its end, has no spaces.
    """
    for cell in cells:
        inner = cell.split("\n")
        parts = [[part.strip() for part in text.split(delimiter)] for text in inner[1:]]
        rows = [part for part in parts if len(part) >= columns > 1]
        if any((part[0] and " " not in part[0]) or _FILE.fullmatch(part[-1]) for part in rows):
            first = line - len(inner) + 1
            raise BenchError(
                f"{path}: a quotation mark joins the lines {first} to {line}, which look like rows of their own",
                f"close or double the quotation mark in line {first}",
            )


def caption_list(cell: str) -> list[str] | None:
    """The captions of a cell that is a list of texts in JSON or Python; None for any other cell."""
    text = cell.strip()
    if not (text.startswith("[") and text.endswith("]")):
        return None
    try:
        values = json.loads(text)
    except ValueError:
        values = _python_list(text)
    if isinstance(values, list) and values and all(isinstance(value, str) for value in values):
        return values
    return None


def _python_list(text: str) -> object:
    """The value of a list of Python strings; None if adjacent strings would be concatenated."""
    try:
        tokens = [token for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.string.strip()]
        kinds = [token.type for token in tokens]
        if any(first == second == tokenize.STRING for first, second in pairwise(kinds)):
            return None
        return ast.literal_eval(text)
    except (SyntaxError, ValueError, tokenize.TokenError, MemoryError, RecursionError):
        return None
