"""Data sets of the Hugging Face Hub: parquet files, and the folders that `save_to_disk` of `datasets` writes.

Both hold pictures as columns of bytes. Annotations are read without them; `write_pictures` writes them as files.
"""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from harness.data.formats.annotations import (
    REJECTED_FIELDS,
    SPLIT_NAMES,
    AnnotatedImage,
    Annotations,
    ReadOptions,
    split_of_name,
)
from harness.data.formats.caption_tables import (
    CAPTION_FIELDS,
    FILE_FIELDS,
    ID_FIELDS,
    IMAGE_FIELDS,
    NUMBERED_CAPTION,
    which_captions,
)
from harness.data.formats.captions_by_image import captions_of
from harness.data.formats.content import Content
from harness.data.formats.image_folders import PICTURES, metadata_files
from harness.utils.atomic import replacing
from harness.utils.errors import BenchError
from harness.utils.files import RefusedPath, absolute, plain_path, shortened
from results.errors import install_extra
from zoo.errors import first_line

_SHARD: Final = re.compile(r"(?P<split>.+)-\d+-of-\d+(-[0-9a-f]+)?")
_ROWS: Final = 1000
_ROWS_WITH_PICTURES: Final = 32


@dataclass(frozen=True, slots=True)
class _Part:
    """A file of rows, and the split in its name or its folder's; None if neither names one."""

    path: Path
    split: str | None


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns of a data set.

    Attributes:
        pictures: holds pictures, as objects of bytes and path; None if there is no such column.
        file: a text with the pictures' files; None if there is none.
        id: a text or a number that names the images; None if the file does.
        captions: all that may hold captions. Several that are not numbered must agree.
        rejecting: those of `REJECTED_FIELDS`.
    """

    pictures: str | None
    file: str | None
    id: str | None
    captions: list[str]
    split: str | None
    rejecting: list[str]

    @property
    def read(self) -> list[str]:
        """All columns of annotations, and only the paths of images."""
        paths = [f"{self.pictures}.path"] if self.pictures else []
        return [
            *paths,
            *dict.fromkeys(name for name in (self.file, self.id, self.split) if name),
            *self.captions,
            *self.rejecting,
        ]


@dataclass(slots=True)
class _Row:
    """One row of a file.

    Attributes:
        part: the split of its file, or "row" where that says none; with `number`, the index there, it names the row.
        path: the picture below a folder; "" if the row has no path that can be used.
    """

    where: str
    part: str
    number: int
    split: str | None
    path: str
    name: str | int | None
    captions: list[str] = field(default_factory=list)
    is_rejected: bool = False


def sniff_parquet(content: Content) -> str:
    """A parquet file, or a folder with some that has no metadata of an imagefolder."""
    if not content.is_folder:
        return f"it is {content.archive}" if content.archive == "a parquet file" else ""
    if metadata_files(content.path):
        return ""
    files = _parquet_files(content.path)
    return f"it has {files[0].relative_to(content.path)}" if files else ""


def read_parquet(content: Content, options: ReadOptions) -> Annotations:
    """The rows of parquet files; a split is the row's `split`, or that of the file's name or of its folder.

    Raises:
        BenchError: pyarrow is missing, a file is damaged, a column is missing or several hold different captions.
    """
    folder = content.path if content.is_folder else content.path.parent
    files = _parquet_files(content.path) if content.is_folder else [content.path]
    parts = [_Part(file, _split_of_file(file, folder)) for file in files]
    data_sets = sorted({_without_split(file.parent.relative_to(folder)) for file in files})
    if len(data_sets) > 1:
        raise BenchError(
            f"{folder} holds several data sets: {', '.join(map(str, data_sets))}",
            f"give the one that is meant: {folder / data_sets[-1]}",
        )
    return _read(content.path, parts, options)


def sniff_datasets_folder(content: Content) -> str:
    if not content.is_folder:
        return ""
    if (content.path / "dataset_dict.json").is_file():
        return "it has dataset_dict.json"
    return "it has state.json and dataset_info.json" if _is_dataset(content.path) else ""


def read_datasets_folder(content: Content, options: ReadOptions) -> Annotations:
    """What `Dataset.save_to_disk` writes, or `DatasetDict.save_to_disk` with a folder for each split.

    Raises:
        BenchError: as `read_parquet`, and where a file is missing.
    """
    folder = content.path
    parts: list[_Part] = []
    if (folder / "dataset_dict.json").is_file():
        for split in _read_object(folder / "dataset_dict.json").get("splits", []):
            below = folder / Path(str(split)).name
            parts += [_Part(path, _split_name(str(split))) for path in _arrow_files(below)]
    else:
        split = SPLIT_NAMES.get(str(_read_object(folder / "state.json").get("_split")))
        parts += [_Part(path, split) for path in _arrow_files(folder)]
    return _read(folder, parts, options)


def _is_dataset(folder: Path) -> bool:
    return (folder / "state.json").is_file() and (folder / "dataset_info.json").is_file()


def _arrow_files(folder: Path) -> list[Path]:
    """The arrow files that the state of a saved data set names, in its order."""
    entries = _read_object(folder / "state.json").get("_data_files", [])
    return [folder / Path(str(entry["filename"])).name for entry in entries]


def _read_object(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BenchError(
            f"{path} cannot be read: {first_line(error)}", "save the data set again: dataset.save_to_disk(FOLDER)"
        ) from error
    return value if isinstance(value, dict) else {}


def _parquet_files(folder: Path) -> list[Path]:
    """The folder's own parquet files, else those of its `data/`, else all below it."""
    for pattern in ("*.parquet", "data/*.parquet", "**/*.parquet"):
        if files := sorted(path for path in folder.glob(pattern) if path.is_file()):
            return files
    return []


def _split_of_file(file: Path, folder: Path) -> str | None:
    """The split of "train-00000-of-00002.parquet", of "val.parquet", or of the file's folder below `folder`."""
    if shard := _SHARD.fullmatch(file.stem):
        return _split_name(shard["split"])
    folders = file.relative_to(folder).parts[:-1]
    names = [file.stem, *reversed(folders)]
    return next((split for name in names if (split := split_of_name(name))), None)


def _without_split(folder: Path) -> Path:
    """The folder, or its parent where the folder is named like a split."""
    return folder.parent if split_of_name(folder.name) else folder


def _split_name(name: str) -> str:
    return SPLIT_NAMES.get(name.lower()) or split_of_name(name) or name


def _read(path: Path, parts: Sequence[_Part], options: ReadOptions) -> Annotations:
    """The annotations of all files of a data set."""
    annotations = Annotations(path)
    if not parts:
        raise BenchError(f"{path} holds no rows", "give a parquet file, or a folder that save_to_disk wrote")
    columns = _find_columns(parts[0].path, options)
    rows = _read_rows(annotations, parts, columns, options)
    parts_of_path: dict[str, set[str]] = {}
    for row in rows:
        parts_of_path.setdefault(row.path, set()).add(row.part)
    images: list[AnnotatedImage | None] = []
    for row in rows:
        file = row.path
        if columns.pictures is not None:
            file = _picture_name(row, is_unique=len(parts_of_path[row.path]) == 1)
        if row.name is None and not file:
            annotations.add_problem("rows without a picture", row.where)
            images.append(None)
            continue
        image = annotations.image(file if row.name is None else row.name, file)
        if row.path and image.file != file:
            images.append(None)
            annotations.add_problem("images with two files", f"{image.name} ({row.where}: {file}, before {image.file})")
            continue
        images.append(image)
        if not row.captions and not row.is_rejected:
            annotations.add_problem("rows without a caption", row.where)
        image.captions += row.captions
        if row.split is not None:
            annotations.set_split(image, row.split, row.where)
    if columns.pictures is not None:
        annotations.write_pictures = partial(_write_pictures, annotations, parts, columns.pictures, images)
    return annotations


def _picture_name(row: _Row, *, is_unique: bool) -> str:
    """The file name for a picture that is stored in a row, unique in the data set."""
    if not row.path:
        return f"{row.part}-{row.number:06d}"
    return row.path if is_unique else f"{row.part}/{row.path}"


def _read_rows(annotations: Annotations, parts: Sequence[_Part], columns: _Columns, options: ReadOptions) -> list[_Row]:
    """The rows of all files; BenchError if columns that are not numbered hold different captions."""
    rows: list[_Row] = []
    counts: dict[str | None, int] = {}
    numbered = all(NUMBERED_CAPTION.fullmatch(name.lower()) for name in columns.captions)
    differing: set[str] = set()
    for part in parts:
        earlier_rows = counts.get(part.split, 0)
        for index, values in enumerate(_rows_of(part.path, columns.read, _ROWS)):
            row_number = earlier_rows + index
            counts[part.split] = row_number + 1
            where = f"{part.path.name}, row {index}"
            texts = {name: _texts_of(values[name]) for name in columns.captions}
            captions_of_row = texts[columns.captions[0]]
            if numbered:
                captions_of_row = [text for name in columns.captions for text in texts[name] if text.strip()]
            else:
                differing.update(name for name in texts if texts[name] != texts[columns.captions[0]])
            split = part.split
            if columns.split is not None and values[columns.split] not in (None, ""):
                split_value = str(values[columns.split])
                split = SPLIT_NAMES.get(split_value.strip().lower(), split_value)
            path = _path_of(values, columns)
            name = values[columns.id] if columns.id is not None else None
            if isinstance(name, float):
                name = int(name) if name.is_integer() else None
            is_rejected = annotations.rejects({name.lower(): values[name] for name in columns.rejecting})
            captions = [] if is_rejected else captions_of_row
            rows.append(_Row(where, part.split or "row", row_number, split, path, name, captions, is_rejected))
    if differing:
        names = [name for name in columns.captions if name in differing]
        raise which_captions(annotations.path, [columns.captions[0], *names], options)
    return rows


def _texts_of(value: Any) -> list[str]:
    """The captions of a cell, also of an object of lists, as `Sequence` of `datasets` has them."""
    if isinstance(value, dict):
        value = next((value[key] for key in ("raw", "caption") if key in value), None)
    return captions_of(value)


def _path_of(values: dict[str, Any], columns: _Columns) -> str:
    """The file of a row's image; "" for an image inside the parquet file without a usable path."""
    if columns.pictures is None:
        value = values[columns.file] if columns.file is not None else None
        return str(value or "").strip().replace("\\", "/")
    candidates = [(values[columns.pictures] or {}).get("path")]
    if columns.file is not None:
        candidates.append(values[columns.file])
    for candidate in candidates:
        try:
            path = plain_path(str(candidate or "").replace("\\", "/"))
        except RefusedPath:
            continue
        if Path(path).suffix.lower() in PICTURES:
            return path
    return ""


def _find_columns(path: Path, options: ReadOptions) -> _Columns:
    with _opened(path) as file:
        schema = file.schema_arrow if hasattr(file, "schema_arrow") else file.schema
    kinds = {column.name: _kind(column.type) for column in schema}
    lower = {name.lower(): name for name in kinds}

    def first_of(names: Sequence[str], *wanted_kinds: str) -> str | None:
        return next((lower[name] for name in names if name in lower and kinds[lower[name]] in wanted_kinds), None)

    description = ", ".join(f"{shortened(column.name, 40)} ({shortened(str(column.type), 40)})" for column in schema)
    if options.image_field is not None:
        pictures = first_of([options.image_field.lower()], "picture")
        file = first_of([options.image_field.lower()], "text")
        id_column = first_of([options.image_field.lower()], "number")
    else:
        pictures = first_of(FILE_FIELDS, "picture")
        if pictures is None:
            pictures = next((name for name in kinds if kinds[name] == "picture"), None)
        file = first_of(FILE_FIELDS, "text")
        id_column = first_of(ID_FIELDS, "text", "number")
        if pictures is None and file is None and id_column is None:
            id_column = first_of(IMAGE_FIELDS, "text", "number")
    if pictures is None and file is None and id_column is None:
        raise BenchError(
            f"{path} has no column of pictures: its columns are {description}",
            f"name the one with texts or with objects of bytes and path: {options.image_option} NAME"
            if options.image_option
            else f"call it {FILE_FIELDS[0]} or {ID_FIELDS[0]}",
        )
    if options.caption_field is not None:
        caption_column = first_of([options.caption_field.lower()], "text", "texts")
        captions = [] if caption_column is None else [caption_column]
    else:
        texts = {name.lower(): name for name in kinds if kinds[name] == "text"}
        matches = [match for name in texts if (match := NUMBERED_CAPTION.fullmatch(name))]
        captions = [texts[name] for name in texts if name in {match[0] for match in matches}]
        unnumbered = [texts[name] for name in texts if name in {match[1] for match in matches}]
        if unnumbered:
            raise BenchError(
                f"{path} has captions in {', '.join(unnumbered + captions)}, of which one has no number",
                f"call it {unnumbered[0]}_0, or choose one column: {options.caption_option} {unnumbered[0]}",
            )
        if not captions:
            candidates = [first_of([name], "text", "texts") for name in CAPTION_FIELDS]
            captions = [name for name in candidates if name is not None]
    if not captions:
        raise BenchError(
            f"{path} has no column of captions: its columns are {description}",
            f"name the one with the captions: {options.caption_option} NAME",
        )
    rejecting = [lower[name] for name in REJECTED_FIELDS if name in lower]
    return _Columns(pictures, file, id_column, captions, first_of(["split"], "text"), rejecting)


def _kind(data_type: Any) -> str:
    """What a column can hold: "text", "texts", "number", "picture", or "" for anything else."""
    from pyarrow import types

    if types.is_dictionary(data_type):
        data_type = data_type.value_type
    if types.is_string(data_type) or types.is_large_string(data_type) or types.is_string_view(data_type):
        return "text"
    if types.is_integer(data_type) or types.is_floating(data_type):  # pandas writes numbers beside blanks as 391.0
        return "number"
    if types.is_list(data_type) or types.is_large_list(data_type) or types.is_fixed_size_list(data_type):
        return "texts" if _kind(data_type.value_type) in ("text", "texts") else ""
    if types.is_struct(data_type):
        names = {child.name for child in data_type}
        if {"bytes", "path"} <= names:
            return "picture"
        return "texts" if names & {"raw", "caption"} else ""
    return ""


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """A parquet file, or a reader of the streaming format of arrow; BenchError if it cannot be read."""
    try:
        import pyarrow
        from pyarrow import ipc, parquet
    except ImportError as error:
        raise BenchError(
            f"{path} needs pyarrow, which is not installed",
            f"pip install 'captionbench[hub]', or in a clone of the repository: {install_extra('hub')}",
        ) from error
    try:
        if path.suffix == ".arrow":
            with pyarrow.memory_map(str(path)) as source, ipc.open_stream(source) as stream:
                yield stream
        else:
            with parquet.ParquetFile(path) as file:
                yield file
    except (OSError, pyarrow.ArrowException) as error:
        raise BenchError(
            f"{path} cannot be read: {first_line(error)}", "it is damaged: copy or download it again"
        ) from error


def _rows_of(path: Path, columns: Sequence[str], batch_size: int) -> Iterator[dict[str, Any]]:
    """The values of some columns, row by row; "image.path" is the path alone of a column of pictures."""
    names = [column.removesuffix(".path") for column in columns]
    with _opened(path) as file:
        is_parquet = hasattr(file, "iter_batches")
        schema = file.schema_arrow if is_parquet else file.schema
        if missing := [name for name in names if name not in schema.names]:
            raise BenchError(
                f"{path} has no column {missing[0]}, which files before it have", "give files of one data set"
            )
        for batch in file.iter_batches(batch_size, columns=list(columns)) if is_parquet else file:
            for start in range(0, batch.num_rows, batch_size):  # the batches of arrow are as they were written
                piece = batch.slice(start, batch_size)
                values = {}
                for name, column in zip(names, columns, strict=True):
                    array = piece.column(name)
                    if column != name:
                        values[name] = [{"path": text} for text in array.field("path").to_pylist()]
                    else:
                        values[name] = array.to_pylist()
                yield from (dict(zip(values, cells, strict=True)) for cells in zip(*values.values(), strict=True))


def _write_pictures(
    annotations: Annotations,
    parts: Sequence[_Part],
    column: str,
    images: Sequence[AnnotatedImage | None],
    folder: Path,
) -> int:
    """Write each picture of the files below `folder`, once, and return how many were not there yet.

    A picture that is named by its row gets the ending of its content.

    Raises:
        BenchError: a file of that name is there with other content, or lies behind a link out of the folder.
    """
    written = 0
    rows = (row for part in parts for row in _rows_of(part.path, [column], _ROWS_WITH_PICTURES))
    for row, image in zip(rows, images, strict=True):
        data = (row[column] or {}).get("bytes")
        if not data or image is None:
            continue
        if Path(image.file).suffix.lower() not in PICTURES:
            ending = _ending(data)
            if not ending:
                annotations.add_problem("embedded pictures that are no JPEG, PNG, WebP or GIF", image.file)
                image.usable = False
                continue
            image.file += ending
        written += _write_picture(folder, image.file, data)
    return written


def _write_picture(folder: Path, name: str, data: bytes) -> bool:
    """Write a picture unless it is there already; BenchError as `_write_pictures`."""
    path = folder / name
    if not absolute(path).is_relative_to(absolute(folder)):
        raise BenchError(f"{path} is a link that leads out of {folder}", "name another folder: --images DIR")
    if path.exists():
        if path.is_file() and path.stat().st_size == len(data) and path.read_bytes() == data:
            return False
        raise BenchError(
            f"{path} is there with other content than the picture of this name",
            "name another folder for the pictures: --images DIR",
        )
    with replacing(path) as temporary:
        temporary.write_bytes(data)
    return True


def _ending(data: bytes) -> str:
    """The ending of a picture's file by its first bytes; "" for other content."""
    if data.startswith(b"\xff\xd8\xff"):
        return ".jpg"
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return ".png"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return ".gif"
    return ".webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else ""
