"""Tables of images and captions: Kaggle's captions.txt, Flickr30k's results.csv, and other CSV and TSV files."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from harness.data.formats.annotations import SPLIT_NAMES, AnnotatedImage, Annotations, ReadOptions
from harness.data.formats.content import Content
from harness.data.formats.table import TextTable, caption_list
from harness.utils.errors import BenchError
from harness.utils.files import shortened

FILE_FIELDS: Final = (
    *("file", "file_name", "filename", "image", "image_name", "image_path", "img_path", "image_file", "filepath"),
)
ID_FIELDS: Final = ("image_id", "img_id", "cocoid", "imgid")
IMAGE_FIELDS: Final = (*FILE_FIELDS, *ID_FIELDS, "id")
"""Columns and keys that name images, most specific first; an "id" may be that of the row."""
CAPTION_FIELDS: Final = (
    *("caption", "captions", "text", "comment", "sentence", "sentences", "raw", "report", "description"),
    *("references", "reference_strs"),
)
NUMBERED_CAPTION: Final = re.compile(r"(caption|comment|sentence|raw|description|text|reference|ref)[_. ]?\d+")
"""Columns with one caption each: caption_0, caption1, and caption.1, pandas's name of a repeated column."""
METADATA: Final = ("metadata.jsonl", "metadata.csv")
"""Names of the table of an imagefolder of the Hugging Face hub."""
_KAGGLE: Final = ["image", "caption"]
_FLICKR_RESULTS: Final = ["image_name", "comment_number", "comment"]


def sniff_kaggle(content: Content) -> str:
    is_kaggle = content.headings == _KAGGLE and content.path.name not in METADATA
    return "its first line is image,caption" if is_kaggle else ""


def sniff_flickr_results(content: Content) -> str:
    return "its first line is image_name| comment_number| comment" if content.headings == _FLICKR_RESULTS else ""


def sniff_table(content: Content) -> str:
    """Recognise a table with a heading for images and one for captions."""
    if content.headings in (_KAGGLE, _FLICKR_RESULTS) or content.path.name in METADATA:
        return ""
    image = next((name for name in IMAGE_FIELDS if name in content.headings), None)
    captions = [name for name in content.headings if name in CAPTION_FIELDS or NUMBERED_CAPTION.fullmatch(name)]
    return f"its first line has the columns {image} and {captions[0]}" if image and captions else ""


def read_caption_table(content: Content, options: ReadOptions) -> Annotations:
    """Read a table with a row per image or per caption, one or several columns of captions, or lists of captions.

    Raises:
        BenchError: there is no column of images or of captions, or several hold different captions.
    """
    annotations = Annotations(content.path)
    if content.table is None:
        raise BenchError(
            f"{content.path} is not a table: it has no second column", "`bench data formats` lists the known formats"
        )
    add_table(annotations, content.table, options)
    return annotations


def add_table(annotations: Annotations, table: TextTable, options: ReadOptions, folder: str = "") -> None:
    """Add the images of a table, whose files are below `folder`; its name is their split if it is that of a split."""
    file_column = _image_column(table, options)
    caption_columns = _caption_columns(table, options)
    headings = [name.lower() for name in table.headings]
    id_columns = [headings.index(name) for name in ID_FIELDS if name in headings]
    id_column = id_columns[0] if id_columns and options.image_field is None else file_column
    split_column = headings.index("split") if "split" in headings else None
    folder_name = folder.rstrip("/")
    folder_split = folder_name if folder_name.lower() in SPLIT_NAMES else None
    for row in table.rows:
        where = f"line {row.line}"
        if len(row.cells) != len(table.headings) or not row.cells[file_column].strip():
            annotations.add_problem("lines with another number of fields, or no file", where)
            continue
        if annotations.rejects(dict(zip(headings, row.cells, strict=True))):
            continue
        file = folder + row.cells[file_column].strip().replace("\\", "/")
        image = annotations.image(file if id_column == file_column else row.cells[id_column].strip(), file)
        if image.file != file:
            annotations.add_problem("images with two files", f"{image.name} ({where}: {file}, before {image.file})")
            continue
        _add_captions(annotations, image, [row.cells[column] for column in caption_columns], where)
        if split_column is not None and row.cells[split_column].strip():
            annotations.set_split(image, row.cells[split_column], where)
        elif folder_split is not None:
            annotations.set_split(image, folder_split, where)


def _add_captions(annotations: Annotations, image: AnnotatedImage, cells: Sequence[str], where: str) -> None:
    """Add the captions of a row's cells, each of them a caption or a list of captions."""
    for cell in cells:
        texts = caption_list(cell)
        if texts is None and cell.strip().startswith("[") and cell.strip().endswith("]"):
            annotations.add_problem("cells that look like a list and cannot be read as one", where)
        elif cell.strip() or len(cells) == 1:
            image.captions += texts or [cell]


def _image_column(table: TextTable, options: ReadOptions) -> int:
    headings = [name.lower() for name in table.headings]
    fields = IMAGE_FIELDS if options.image_field is None else (options.image_field.lower(),)
    for name in fields:
        if name in headings:
            return headings.index(name)
    raise _no_column(table, "the pictures' files", options.image_option)


def _caption_columns(table: TextTable, options: ReadOptions) -> list[int]:
    """The columns of captions: the chosen ones, numbered ones, or those with a known name."""
    headings = [name.lower() for name in table.headings]
    rows = [row.cells for row in table.rows if len(row.cells) == len(headings)]
    if options.caption_field is not None:
        columns = [column for column, name in enumerate(headings) if name == options.caption_field.lower()]
        if not columns:
            raise _no_column(table, "captions", options.caption_option)
        return columns
    numbered = _numbered_columns(headings)
    if numbered:
        matches = [NUMBERED_CAPTION.fullmatch(headings[column]) for column in numbered]
        names = {match[1] for match in matches if match}
        unnumbered = [column for column, name in enumerate(headings) if name in names]
        for cells in rows:
            texts = [cells[column] for column in numbered]
            if any(cells[column] not in texts for column in unnumbered):
                return [*unnumbered, *numbered]
        return numbered
    columns = [headings.index(name) for name in CAPTION_FIELDS if name in headings]
    if not columns:
        raise _no_column(table, "captions", options.caption_option)
    first = columns[0]
    differing = [column for column in columns[1:] if any(cells[column] != cells[first] for cells in rows)]
    if differing:
        raise which_captions(table.path, [table.headings[column] for column in (first, *differing)], options)
    return [column for column, name in enumerate(headings) if name == headings[first]]


def _numbered_columns(headings: Sequence[str]) -> list[int]:
    """The numbered columns, each with a caption; those called text_1 only if there are no others."""
    matches = {column: match for column, name in enumerate(headings) if (match := NUMBERED_CAPTION.fullmatch(name))}
    names = {match[1] for match in matches.values()} | {name for name in CAPTION_FIELDS if name in headings}
    return [column for column, match in matches.items() if match[1] != "text" or names == {"text"}]


def which_captions(path: Path, names: Sequence[str], options: ReadOptions) -> BenchError:
    """The error for several fields that may hold the captions."""
    return BenchError(
        f"{path}: {' and '.join(names)} hold different texts",
        f"say which are captions: {options.caption_option} {names[0]}",
    )


def _no_column(table: TextTable, content: str, option: str) -> BenchError:
    names = table.headings
    headings = ", ".join(shortened(name, 40) for name in names) or "nothing"
    if any(" " in name or "://" in name for name in names):
        line = "a line such as image,caption, with a name for each column"
        if len(names) == 2:
            line = f"printf '{table.delimiter.join(_names_of_two(names))}\\n' | cat - {table.path.name} > "
            line += f"named{table.path.suffix}"
        return BenchError(
            f"{table.path} has no line of column names: its first line is {headings}",
            f"put one before it: {line}".replace("\t", "\\t"),
        )
    if not option:
        return BenchError(
            f"{table.path} has no column of {content}: its first line names {headings}",
            f"call the column {FILE_FIELDS[0]} or {ID_FIELDS[0]} in the first line",
        )
    candidates = [name for name in names if name and name.lower() not in (*IMAGE_FIELDS, *CAPTION_FIELDS, "split")]
    return BenchError(
        f"{table.path} has no column of {content}: its first line names {headings}",
        f"name the column, for example: {option} {shortened(candidates[0] if candidates else 'NAME', 40)}",
    )


def _names_of_two(cells: Sequence[str]) -> tuple[str, str]:
    """Headings for two columns without headings: cells with files or URLs have no spaces."""
    return ("file", "caption") if " " not in cells[0] else ("caption", "file")
