"""Other formats in Karpathy's: COCO's captions, R2Gen's, a CSV, an imagefolder; pictures are checked and split."""

import hashlib
import math
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.data.dataset import Box, told_size
from harness.data.formats.references import (
    SPLIT_NAMES,
    entries_by_split,
    first_picture,
    is_image_id,
    numbered_images,
    references_of,
    sanitise_caption,
    without_rejected,
)
from harness.data.formats.table import ENDINGS, METADATA, TextTable, caption_list, read_table
from harness.data.formats.text import read_encoded
from harness.data.karpathy import PicturePaths, RefusedPath, plain_path
from harness.utils.errors import BenchError
from harness.utils.files import absolute, shortened
from harness.utils.hashing import sha256_of
from harness.utils.json_io import read_json
from results.files import load_json

_SOURCE, _HASH = "source", "hash:80/10/10"
_SPLITS = ("train", "val", "test")
_RULES = (_HASH, "hash:60/20/20", "hash:50/25/25", "hash:40/30/30", "hash:30/35/35")
_TESTING_RULES = ("hash:50/10/40", "hash:40/20/40", "hash:40/30/30", "hash:30/30/40")
LEAST_VALIDATED = 2
"""Images that a run needs to validate on: CIDEr-D of a single one is always 0."""
_TABLES = (".csv", ".tsv")
_METADATA_TABLE = "metadata.csv"
_FILE_COLUMNS = ("file", "file_name", "filename", "image", "image_name", "image_path", "image_id", "id")
_CAPTION_COLUMNS = ("caption", "captions", "text", "comment", "sentence", "sentences", "raw", "report")
_NUMBERED_CAPTION = re.compile(r"(?:caption|comment|sentence|raw)_?\d+")
_TOKEN_FILE = re.compile(r"(.+\.\w+)#\d+")
_PICTURES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")
_LISTED = 8


@dataclass(slots=True)
class Picture:
    """One image as its source has it; `file` is relative to the picture folder, with forward slashes.

    `image_id` and `split` are None where the source has none; `boxes` are corners in pixels, None where unknown.
    `usable` is false where its split cannot be told.
    """

    file: str
    captions: list[str] = field(default_factory=list)
    image_id: int | None = None
    split: str | None = None
    domain: str | None = None
    boxes: list[Box] | None = None
    size: tuple[int, int] | None = None
    usable: bool = True


@dataclass(slots=True)
class Source:
    """The pictures of a source by file or id, in its order, and by problem the files or entries that it concerns.

    `notes` are what was left out or completed, and is no problem.
    """

    pictures: dict[object, Picture] = field(default_factory=dict)
    problems: dict[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def complain(self, problem: str, about: str) -> None:
        """Add to a problem's list."""
        self.problems.setdefault(problem, []).append(about)

    def set_split(self, picture: Picture, said: object, where: str) -> None:
        """Take the split that an entry says (`where`: "line 3"); unknown and contradicting ones are complained of."""
        split = SPLIT_NAMES.get(said.strip().lower()) if isinstance(said, str) else None
        if split is None:
            problem = f"pictures with a split that is none of {', '.join(SPLIT_NAMES)}"
            self.complain(problem, f"{picture.file} ({where}: {shortened(repr(said), 40)})")
        elif picture.split not in (None, split):
            self.complain("pictures in two splits", f"{picture.file} ({where}: {split}, before {picture.split})")
        else:
            picture.split = split
            return
        picture.usable = False

    def add_boxes(self, picture: Picture, given: Iterable[Any]) -> None:
        """Add boxes given as x, y, width, height, each once; those without area or numbers are complained of."""
        picture.boxes = picture.boxes or []
        for box in given:
            try:
                x, y, width, height = (float(number) for number in box)
                sound = math.isfinite(x + y + width + height) and min(width, height) > 0
            except (OverflowError, TypeError, ValueError):
                sound = False
            if not sound:
                self.complain("boxes that are no x, y, width, height", f"{picture.file}: {str(box)[:60]}")
            elif (corners := (x, y, x + width, y + height)) not in picture.boxes:
                picture.boxes.append(corners)


def read_source(
    given: Sequence[Path],
    *,
    instances: Sequence[Path],
    images: Path | None,
    file_column: str | None,
    caption_column: str | None,
) -> tuple[Source, Path]:
    """The pictures of COCO's JSON, a table or an imagefolder, and their folder; BenchError where `given` is none."""
    first = given[0]
    coco = all(path.name.endswith((".json", ".json.gz")) for path in given)
    if instances and not coco:
        raise BenchError("--instances adds boxes to COCO's captions, and these are no captions_*.json", "leave it out")
    columns = _Columns(file_column, caption_column)
    if coco:
        folder = images or first.absolute().parent
        return _read_json_files(given, instances, folder, columns), folder
    if len(given) > 1:
        raise BenchError(f"SOURCE: {len(given)} are given, and only COCO's captions come in several files", "give one")
    if first.is_dir() and _metadata_files(first):
        return _read_imagefolder(first, columns), images or first
    if first.is_file() and first.name == METADATA:
        return _read_imagefolder(first.parent, columns), images or first.absolute().parent
    tables = _tables_in(first) if first.is_dir() else [first]
    if len(tables) != 1 or tables[0].suffix.lower() not in ENDINGS:
        held = f"holds {', '.join(path.name for path in tables)}" if len(tables) > 1 else "is none of the known formats"
        raise BenchError(
            f"SOURCE {first} {held}",
            f"give COCO's captions_*.json, a CSV or a folder with one, or a folder with {METADATA}",
        )
    source = Source()
    _read_table(tables[0], columns, source)
    return source, images or _picture_folder(tables[0].absolute().parent)


@dataclass(frozen=True, slots=True)
class _Columns:
    """What `--file-column` and `--caption-column` name, columns of a table or keys of an object."""

    file: str | None
    caption: str | None


def source_files(given: Iterable[Path]) -> list[Path]:
    """The files that are read of sources: tables or metadata of a folder, and others as they are."""
    files: list[Path] = []
    for path in given:
        files += (_metadata_files(path) or _tables_in(path)) if path.is_dir() else [path]
    return files


def _tables_in(folder: Path) -> list[Path]:
    tables = sorted(path for ending in _TABLES for path in folder.glob(f"*{ending}"))
    return tables or sorted(folder.glob("captions.txt")) or sorted(folder.glob("*.token.txt"))


def _picture_folder(folder: Path) -> Path:
    """The folder of the pictures beside a table: its one folder Images or images, if there is one."""
    beside = [path for path in folder.iterdir() if path.is_dir() and path.name.lower() == "images"]
    return beside[0] if len(beside) == 1 else folder


def _read_table(path: Path, columns: _Columns, source: Source, folder: str = "") -> None:
    """Add the pictures of a table, with or without a column `split`; files are below `folder`."""
    table = read_table(path)
    first_cell = table.headings[0] if table.headings else ""
    if _TOKEN_FILE.fullmatch(first_cell) and len(table.headings) == 2:
        if columns != _Columns(None, None):
            raise BenchError(
                f"{path} is a token file without column names: --file-column and --caption-column do not apply",
                "leave them out",
            )
        _read_token_file(path, source)
        return
    file_at = _file_column(table, columns.file)
    captions_at = _caption_columns(table, columns.caption)
    lowered = [name.lower() for name in table.headings]
    split_at = lowered.index("split") if "split" in lowered else None
    rows, captions = 0, 0
    for row in table.rows:
        if len(row.cells) != len(table.headings) or not row.cells[file_at].strip():
            source.complain("lines with another number of fields, or no file", f"line {row.line}")
            continue
        file = folder + row.cells[file_at].strip().replace("\\", "/")
        picture = source.pictures.setdefault(file, Picture(file))
        rows += 1
        for cell in (row.cells[at] for at in captions_at):
            texts = caption_list(cell)
            if texts is None and cell.strip().startswith("[") and cell.strip().endswith("]"):
                source.complain("cells that look like a list and cannot be read as one", f"line {row.line}")
                continue
            if cell.strip() or len(captions_at) == 1:
                picture.captions += texts or [cell]
                captions += len(texts or [cell])
        if split_at is not None and row.cells[split_at].strip():
            source.set_split(picture, row.cells[split_at], f"line {row.line}")
        elif folder.rstrip("/").lower() in SPLIT_NAMES:
            source.set_split(picture, folder.rstrip("/"), f"line {row.line}")
    source.notes.append(f"{path.name}: {rows:,} lines read, {captions:,} captions")


def _read_token_file(path: Path, source: Source) -> None:
    """Add the pictures of Flickr8k.token.txt and its like: NAME.jpg#N, a tab, a caption; splits are files beside it."""
    files = {name: file for file in path.parent.glob("*Images.txt") if (name := _split_of_file(file.name))}
    splits = {line.strip(): name for name, file in files.items() for line in read_encoded(file).splitlines()}
    lines = [line for line in read_encoded(path).splitlines() if line.strip()]
    for number, line in enumerate(lines, 1):
        name, tab, caption = line.partition("\t")
        named = _TOKEN_FILE.fullmatch(name.strip())
        if not tab or named is None:
            source.complain("lines that are no NAME.jpg#N, tab, caption", f"line {number}")
            continue
        picture = source.pictures.setdefault(named[1], Picture(named[1]))
        picture.captions.append(caption)
        picture.split = splits.get(named[1])
    without = [file for file, picture in source.pictures.items() if picture.split is None]
    if files and without:
        source.notes.append(f"left out: {len(without)} pictures that are in none of the files of splits")
        for file in without:
            del source.pictures[file]
    source.notes.append(f"{path.name}: {len(lines):,} lines read")


def _split_of_file(name: str) -> str | None:
    return next((SPLIT_NAMES[part] for part in re.findall(r"train|dev|val|test", name.lower())), None)


def _file_column(table: TextTable, chosen: str | None) -> int:
    wanted = _FILE_COLUMNS if chosen is None else (chosen.lower(),)
    lowered = [name.lower() for name in table.headings]
    if there := [name for name in wanted if name in lowered]:
        return lowered.index(there[0])
    raise _no_column(table, "the pictures' files", "--file-column")


def _caption_columns(table: TextTable, chosen: str | None) -> list[int]:
    """The columns of captions: the chosen one, numbered ones, or the one with a known name.

    BenchError where there is none, or where several hold different texts.
    """
    lowered = [name.lower() for name in table.headings]
    if chosen is not None:
        if chosen.lower() in lowered:
            return [lowered.index(chosen.lower())]
        raise _no_column(table, "captions", "--caption-column")
    if numbered := [at for at, name in enumerate(lowered) if _NUMBERED_CAPTION.fullmatch(name)]:
        return numbered
    known = [lowered.index(name) for name in _CAPTION_COLUMNS if name in lowered]
    if not known:
        raise _no_column(table, "captions", "--caption-column")
    whole = [row.cells for row in table.rows if len(row.cells) == len(lowered)]
    if differing := [at for at in known[1:] if any(cells[at] != cells[known[0]] for cells in whole)]:
        names = [table.headings[at] for at in (known[0], *differing)]
        raise _which_captions(table.path, names)
    return known[:1]


def _which_captions(path: Path, names: Sequence[str]) -> BenchError:
    return BenchError(
        f"{path}: {' and '.join(names)} hold different texts", f"say which are captions: --caption-column {names[0]}"
    )


def _no_column(table: TextTable, what: str, option: str) -> BenchError:
    shown = ", ".join(shortened(name, 40) for name in table.headings) or "nothing"
    if any(" " in name or "://" in name for name in table.headings):
        return BenchError(
            f"{table.path} has no line of column names: its first line is {shown}",
            f"put one before it: printf 'caption\\tfile\\n' | cat - {table.path.name} > named{table.path.suffix}",
        )
    example = next((name for name in table.headings if name), "NAME")
    return BenchError(
        f"{table.path} has no column of {what}: its first line names {shown}",
        f"name the column, for example: {option} {shortened(example, 40)}",
    )


def _read_json_files(files: Sequence[Path], instances: Sequence[Path], images: Path, columns: _Columns) -> Source:
    """The captions of COCO's files with boxes of others, or of one file that has captions by image."""
    first = read_json(files[0])
    if _is_coco(first) or instances or len(files) > 1:
        return _read_coco(files, instances, images, columns)
    if (by_split := entries_by_split(first)) is not None:
        return _read_splits(files[0], by_split, columns)
    if columns != _Columns(None, None):
        raise BenchError(
            f"{files[0]} is no table and not in COCO's format: --file-column and --caption-column do not apply",
            "leave them out",
        )
    if isinstance(first, dict) and isinstance(first.get("images"), list):
        where = f"bench data verify {shlex.quote(str(files[0]))} --images {shlex.quote(str(images))}"
        raise BenchError(f"{files[0]} is in Karpathy's format already", f"it needs no conversion; check it: {where}")
    try:
        references = references_of(first, files[0])
    except BenchError as error:
        keys = ", ".join(map(str, first))[:200] if isinstance(first, dict) else f"a {type(first).__name__}"
        raise BenchError(
            f"{files[0]} is in no format that is known here: its top has {keys}",
            "write a CSV with the columns file, caption and split (docs/own_data.md)",
        ) from error
    source = Source()
    for image_id, captions in references.captions.items():
        file = references.files.get(image_id, str(image_id))
        source.pictures[image_id] = Picture(file, captions=list(captions), domain=references.domains.get(image_id))
    return source


def _read_splits(path: Path, by_split: Mapping[str, Sequence[Mapping[str, Any]]], columns: _Columns) -> Source:
    """The pictures of R2Gen's form: entries by split, each with a text and one picture or several, the first of them.

    BenchError where no entry has a key of pictures or of captions, or several hold different captions.
    """
    source = Source()
    entries = [entry for listed in by_split.values() for entry in listed]
    keys = dict.fromkeys(key for entry in entries for key in entry)
    file_key = columns.file or next((name for name in _FILE_COLUMNS if name in keys), None)
    if file_key not in keys:
        raise BenchError(
            f"{path} has no pictures: the keys of its entries are {', '.join(keys)[:200]}",
            "name the key of the pictures' files: --file-column KEY",
        )
    caption_key = columns.caption or _caption_key(path, entries)
    captions, further = 0, 0
    for split, listed in by_split.items():
        for number, entry in enumerate(listed):
            where = f"{split}, entry {number}"
            given = entry.get(file_key)
            file = first_picture(given)
            if file is None:
                source.complain(f'entries without "{file_key}"', where)
                continue
            file = file.replace("\\", "/")
            picture = source.pictures.setdefault(file, Picture(file, size=told_size(entry)))
            texts = _captions_of(f"{path}, {where}", entry, caption_key)
            picture.captions += texts
            captions += len(texts)
            further += isinstance(given, list) and len(given) > 1
            source.set_split(picture, split, where)
    source.notes.append(f"{path.name}: {len(entries):,} entries read, {captions:,} captions")
    if further:
        source.notes.append(
            f"{further:,} entries have further pictures, which are not used: a picture an entry, the first of its list"
        )
    return source


def _read_coco(files: Sequence[Path], instances: Sequence[Path], images: Path, columns: _Columns) -> Source:
    """The captions of COCO's files, with boxes of others.

    A split is read off a file's name (captions_val2014.json). Pictures are looked for below `images`, and there in the
    folder of the name's end (val2014).
    """
    source = Source()
    by_id = source.pictures
    file_key, caption_key = columns.file or "file_name", columns.caption or "caption"
    for file in files:
        content = _coco_content(file)
        entries: list[Any]
        entries, annotations, _ = numbered_images(content["images"], content["annotations"])
        annotations, notes = without_rejected(annotations)
        source.notes += notes
        for key, option, listed in (
            (columns.file, "--file-column", entries),
            (columns.caption, "--caption-column", annotations),
        ):
            keys = {name for entry in listed if isinstance(entry, dict) for name in entry}
            if key is not None and key not in keys:
                raise BenchError(
                    f"{option} {key}: {file} has no such key", f"its keys are {', '.join(sorted(keys))[:200]}"
                )
        parts = re.findall(r"[a-z]+|\d+", file.name.lower())
        split = next((SPLIT_NAMES[part] for part in parts if part in SPLIT_NAMES), None)
        folder = file.name.partition(".")[0].rpartition("_")[2]
        for number, entry in enumerate(entries):
            name = entry.get(file_key) if isinstance(entry, dict) else None
            if not isinstance(name, str) or not is_image_id(entry.get("id")):
                source.complain(f'entries without "id" or "{file_key}"', f"{file.name}: entry {number}")
                continue
            inside = f"{folder}/{name}"
            place = inside if not (images / name).is_file() and (images / inside).is_file() else name
            if entry["id"] in by_id:
                source.complain("pictures with an id that another has", f"{file.name}: {place}")
                continue
            domain = entry.get("domain")
            by_id[entry["id"]] = Picture(
                place,
                image_id=entry["id"],
                split=split,
                size=told_size(entry),
                domain=domain if isinstance(domain, str) and domain.isprintable() else None,
            )
        for entry in annotations:
            owner = by_id.get(_image_of(entry))
            caption = entry.get(caption_key) if isinstance(entry, dict) else None
            if owner is None or not isinstance(caption, str):
                label = str(entry.get("id", "no id"))[:40] if isinstance(entry, dict) else "no object"
                source.complain("annotations without a caption or an image", f"{file.name}: {label}")
            else:
                owner.captions.append(caption)
    for content in map(_coco_content, instances):
        for entry in content["images"]:  # an image without any box is known to have none
            if isinstance(entry, dict) and is_image_id(entry.get("id")) and (owner := by_id.get(entry["id"])):
                owner.boxes = owner.boxes or []
                owner.size = owner.size or told_size(entry)
        for entry in content["annotations"]:
            if owner := by_id.get(_image_of(entry)):
                source.add_boxes(owner, [entry.get("bbox")])
    return source


def _is_coco(content: object) -> bool:
    return isinstance(content, dict) and all(isinstance(content.get(key), list) for key in ("images", "annotations"))


def _coco_content(file: Path) -> dict[str, Any]:
    content: Any = read_json(file)
    if _is_coco(content):
        return dict(content)
    raise BenchError(
        f'{file} is not in COCO\'s format: it has no lists "images" and "annotations"',
        "give captions_*.json, and instances_*.json with --instances",
    )


def _image_of(entry: Any) -> int | None:
    image_id = entry.get("image_id") if isinstance(entry, dict) else None
    return image_id if is_image_id(image_id) else None


def _metadata_files(folder: Path) -> list[Path]:
    """The folder's own `metadata.jsonl` or `metadata.csv`, or those of its folders."""
    for name in (METADATA, _METADATA_TABLE):
        if (folder / name).is_file():
            return [folder / name]
        if below := sorted(folder.glob(f"*/{name}")):
            return below
    return []


def _read_imagefolder(folder: Path, columns: _Columns) -> Source:
    """The pictures that the folder's metadata name, as data sets of the Hugging Face Hub have it.

    A split is the line's `split`, or that of its folder. A caption is a text, or a list of them. `objects.bbox` is x,
    y, width, height in pixels.
    """
    source = Source()
    for file in _metadata_files(folder):
        below = file.parent.relative_to(folder).as_posix()
        inside = "" if below == "." else f"{below}/"
        if file.name == _METADATA_TABLE:
            _read_table(file, columns, source, inside)
            continue
        lines = [(number, line) for number, line in enumerate(read_encoded(file).split("\n"), 1) if line.strip()]
        entries = [(number, _line(f"{file}, line {number}", line, columns.file)) for number, line in lines]
        key = columns.caption or _caption_key(file, [entry for _, entry in entries])
        captions = 0
        for number, entry in entries:
            name = inside + entry[columns.file or "file_name"]
            picture = source.pictures.setdefault(name, Picture(name, size=told_size(entry)))
            texts = _captions_of(f"{file}, line {number}", entry, key)
            picture.captions += texts
            captions += len(texts)
            if entry.get("split") not in (None, ""):
                source.set_split(picture, entry["split"], f"line {number}")
            elif (top := name.removeprefix("./").partition("/")[0]).lower() in SPLIT_NAMES:
                source.set_split(picture, top, f"line {number}")
            objects = entry.get("objects")
            boxes = objects.get("bbox") if isinstance(objects, dict) else objects
            if isinstance(objects, dict) and isinstance(boxes, list):
                source.add_boxes(picture, boxes)
            elif boxes is not None:
                source.complain('objects without a list "bbox"', f"{name} (line {number}: {str(boxes)[:60]})")
        source.notes.append(f"{inside}{file.name}: {len(entries):,} lines read, {captions:,} captions")
    return source


def _line(where: str, line: str, file_key: str | None) -> dict[str, Any]:
    """A line's object, which names a file."""
    try:
        entry = load_json(line)
    except ValueError as error:
        raise BenchError(f"{where} is not valid JSON: {str(error)[:100]}", "write one JSON object a line") from error
    key = file_key or "file_name"
    if not isinstance(entry, dict) or not isinstance(entry.get(key), str):
        example = 'a line is {"file_name": "a.jpg", "caption": "a dog"}, as imagefolder has it'
        raise BenchError(f'{where} has no text "{key}"', example)
    return entry


def _caption_key(file: Path, entries: Sequence[Mapping[str, Any]]) -> str:
    """The key of the captions, by the rule of a table's columns; BenchError where several hold different texts."""
    keys = dict.fromkeys(key for entry in entries for key in entry)
    known = [name for name in _CAPTION_COLUMNS if name in keys]
    if not known:
        raise BenchError(
            f"{file} has no caption: its keys are {', '.join(keys)[:200]}",
            "name the key of the captions: --caption-column KEY",
        )
    differing = [name for name in known[1:] if any(entry.get(name) != entry.get(known[0]) for entry in entries)]
    if differing:
        raise _which_captions(file, [known[0], *differing])
    return known[0]


def _captions_of(where: str, entry: Mapping[str, Any], key: str) -> list[str]:
    """A line's captions; one that is no text is empty, which is complained of later."""
    if key not in entry:
        raise BenchError(
            f"{where} has no {key}: its keys are {', '.join(entry)[:200]}",
            "name the key of the captions: --caption-column KEY",
        )
    given = entry[key]
    if isinstance(given, str):
        return caption_list(given) or [given]
    listed = given if isinstance(given, list) else [given]
    raw = [each.get("raw") if isinstance(each, dict) else each for each in listed]
    return [each if isinstance(each, str) else "" for each in raw]


def convert(
    source: Source, images: Path, *, name: str, rule: str | None, leave_out: bool
) -> tuple[dict[str, Any], list[str]]:
    """Karpathy's JSON of a source, and sentences on what is strange and in it all the same.

    Pictures that are missing, have no caption, or are given twice (by name or by content, which would put one into two
    splits) and empty captions are problems, as are those that the reader of the source found. With `leave_out` what has
    one is left out, and named under "left_out"; else BenchError, as for no picture, and as `split_pictures`.
    """
    total = len(source.pictures)
    pictures = _captioned(source, _distinct(source, images))
    problems = [f"{what}: {_listed(about)}" for what, about in source.problems.items()]
    if problems and not pictures:
        hint = "repair the source"
        if missing := source.problems.get("missing pictures"):
            hint = f"{images / missing[0]} is not there: name the folder of the pictures, --images DIR"
            if re.match(r"https?:/", missing[0]):
                hint = "download the pictures, and give their files in place of the addresses"
            hint += "; bench evaluate --references needs no pictures"
        raise BenchError(f"no picture of {total} can be used: {'; '.join(problems)}", hint)
    if not pictures:
        raise BenchError("the source names no picture", "see bench data convert --help")
    if problems and not leave_out:
        raise BenchError("; ".join(problems), "repair the source, or leave out what is named here: --skip-bad-images")
    rule = split_pictures(pictures, rule)
    keyed = all(picture.image_id is not None for picture in pictures)
    entries = [_entry(picture, number, keyed) for number, picture in enumerate(pictures)]
    twice = [picture.file for picture in pictures if len(set(picture.captions)) < len(picture.captions)]
    notes = list(source.notes)
    if twice:
        notes.append(f"pictures with the same caption twice, which is kept: {_listed(twice)}")
    return {"dataset": name, "split_by": rule, "left_out": problems, "images": entries}, notes


def split_pictures(pictures: Sequence[Picture], rule: str | None) -> str:
    """Give every picture a split; returns the rule.

    It is "source" for those of the source, "hash:TRAIN/VAL/TEST" for these per cent by a hash of the file name: a
    picture stays in its split whatever is added or left out. None: the source's if it has any, else hash:80/10/10.
    BenchError where it cannot be understood, the source's splits are incomplete, or a split stays empty.
    """
    files = [picture.file for picture in pictures]
    without = [picture.file for picture in pictures if picture.split is None]
    rule = rule or (_HASH if len(without) == len(pictures) else _SOURCE)
    if rule == _SOURCE:
        if without:
            raise BenchError(
                f"--split-by {_SOURCE}: {len(without)} of {len(pictures)} pictures have no split there ({without[0]})",
                f"split all of them by their names: --split-by {working_rule(files) or _HASH}",
            )
        return rule
    shares = _shares(rule)
    if shares is None:
        example = working_rule(files) or _HASH
        raise BenchError(
            f"--split-by {shortened(rule)!r} is no rule for splits",
            f"write --split-by {_SOURCE}, or per cent of train, val and test: --split-by {example}",
        )
    for picture in pictures:
        picture.split = _split_by_name(picture.file, shares)
    filled = {picture.split for picture in pictures}
    if empty := [split for split, share in zip(_SPLITS, shares, strict=True) if share and split not in filled]:
        other = working_rule(files)
        raise BenchError(
            f"--split-by {rule} leaves no picture of {len(pictures)} for {', '.join(empty)}",
            f"give it a larger share: --split-by {other}" if other else "give more pictures",
        )
    return rule


def _shares(rule: str) -> tuple[int, int, int] | None:
    """The per cent of train, val and test of a rule; None where it is none."""
    numbers = re.fullmatch(r"hash:(\d{1,3})/(\d{1,3})/(\d{1,3})", rule, re.ASCII)
    if numbers is None:
        return None
    train, val, test = map(int, numbers.groups())
    return (train, val, test) if train and train + val + test == 100 else None


def _split_by_name(file: str, shares: tuple[int, int, int]) -> str:
    hashed = hashlib.sha256(file.encode("utf-8", "surrogatepass")).digest()[:8]
    percent = int.from_bytes(hashed) / 2**64 * 100
    train, val, _ = shares
    if percent < train:
        return "train"
    return "val" if percent < train + val else "test"


def working_rule(files: Iterable[str], *, tested: int = 0) -> str | None:
    """A rule that splits these pictures so that a run works, and tests on more than `tested`; None where none does."""
    files = list(files)
    for rule in _TESTING_RULES if tested else _RULES:
        shares = _shares(rule)
        counts = Counter(_split_by_name(file, shares) for file in files) if shares else Counter[str]()
        if counts["train"] and counts["val"] >= LEAST_VALIDATED and counts["test"] > tested:
            return rule
    return None


def _listed(about: Sequence[str]) -> str:
    shown = ", ".join(shortened(each) for each in about[:_LISTED])
    return f"{len(about)} ({shown}{', ...' if len(about) > _LISTED else ''})"


def _distinct(source: Source, images: Path) -> list[Picture]:
    """The pictures whose files are there, each once."""
    there: list[Picture] = []
    completed = 0
    paths = PicturePaths(absolute(images))
    by_stem = _files_by_stem(images)
    for picture in [each for each in source.pictures.values() if each.usable]:
        try:
            picture.file = plain_path(picture.file)
            paths.check_inside(picture.file)
            if not (images / picture.file).is_file() and len(named := by_stem.get(Path(picture.file).name, [])) == 1:
                picture.file = named[0]
                completed += 1
            if (images / picture.file).is_file():
                there.append(picture)
            else:
                source.complain("missing pictures", picture.file)
        except RefusedPath as refusal:
            source.complain("pictures whose path is refused", str(refusal))
    if completed:
        source.notes.append(f"{completed} pictures are named without folder or ending, and were found by it")
    sizes = {picture.file: (images / picture.file).stat().st_size for picture in there}
    counts, first, found = Counter(sizes.values()), dict[str, Picture](), []
    for picture in there:
        alone = counts[sizes[picture.file]] == 1
        owner = first.setdefault(picture.file if alone else sha256_of(images / picture.file), picture)
        if owner is picture:
            found.append(picture)
        else:
            source.complain("pictures that are another one", f"{picture.file} is {owner.file}")
    return found


def _files_by_stem(images: Path) -> dict[str, list[str]]:
    """The pictures of a folder by their names without endings."""
    found: dict[str, list[str]] = {}
    for path in images.iterdir() if images.is_dir() else ():
        if path.suffix.lower() in _PICTURES:
            found.setdefault(path.stem, []).append(path.name)
    return found


def _captioned(source: Source, pictures: Sequence[Picture]) -> list[Picture]:
    """The pictures that have captions, without empty ones."""
    for picture in pictures:
        texts = [" ".join(sanitise_caption(caption).split()) for caption in picture.captions]
        picture.captions = [text for text in texts if text]
        if not picture.captions:
            source.complain("pictures without a caption", picture.file)
        elif len(picture.captions) < len(texts):
            source.complain("pictures with an empty caption", picture.file)
    return [picture for picture in pictures if picture.captions]


def _entry(picture: Picture, number: int, keyed: bool) -> dict[str, Any]:
    folder, _, name = picture.file.rpartition("/")
    entry: dict[str, Any] = {"cocoid": picture.image_id} if keyed else {"imgid": number}
    entry |= {"filename": name} | ({"filepath": folder} if folder else {})
    entry |= {"split": picture.split, "sentences": [{"raw": caption} for caption in picture.captions]}
    if picture.domain is not None:
        entry["domain"] = picture.domain
    if picture.boxes is not None:
        entry["boxes"] = picture.boxes
    if picture.size is not None:
        entry["width"], entry["height"] = picture.size
    return entry
