"""A folder with `metadata.jsonl`, as the data sets of the Hugging Face Hub have it (`imagefolder`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.data.convert.source import SPLIT_NAMES, Picture, Source
from harness.data.dataset import told_size
from harness.utils.errors import BenchError
from harness.utils.files import reason
from results.files import load_json, read_text

METADATA = "metadata.jsonl"
_CAPTIONS = ("text", "caption", "captions", "sentences")


def metadata_files(folder: Path) -> list[Path]:
    """The folder's own `metadata.jsonl`, or those of its folders."""
    own = folder / METADATA
    return [own] if own.is_file() else sorted(folder.glob(f"*/{METADATA}"))


def read_imagefolder(folder: Path, caption_column: str | None) -> Source:
    """The pictures that the folder's `metadata.jsonl` name; a split is the line's `split`, or that of its folder.

    A caption is a text, or a list of them. `objects.bbox` is x, y, width, height in pixels.

    Raises:
        BenchError: a file cannot be read, or a line is no JSON object with `file_name` and a caption.
    """
    source = Source()
    by_file: dict[str, Picture] = {}
    for file in metadata_files(folder):
        try:
            lines = read_text(file).split("\n")
        except OSError as error:
            raise BenchError(f"{file} cannot be read: {reason(error)}") from error
        below = file.parent.relative_to(folder).as_posix()
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            entry = _entry(f"{file}, line {number}", line, caption_column)
            name = entry["file_name"] if below == "." else f"{below}/{entry['file_name']}"
            if name not in by_file:
                by_file[name] = Picture(name, size=told_size(entry))
                source.pictures.append(by_file[name])
            _add(source, by_file[name], entry, "" if below == "." else below, f"line {number}")
    return source


def _entry(where: str, line: str, caption_column: str | None) -> dict[str, Any]:
    """A line's object, with its captions as a list of texts under "captions"."""
    try:
        entry = load_json(line)
    except ValueError as error:
        raise BenchError(f"{where} is not valid JSON: {str(error)[:100]}") from error
    if not isinstance(entry, dict) or not isinstance(entry.get("file_name"), str):
        example = 'a line is {"file_name": "a.jpg", "text": "a dog"}, as imagefolder has it'
        raise BenchError(f'{where} has no text "file_name"', example)
    key = caption_column or next((key for key in _CAPTIONS if key in entry), None)
    if key is None or key not in entry:
        raise BenchError(
            f"{where} has no caption: its keys are {', '.join(entry)[:200]}",
            "name the key of the captions: --caption-column KEY",
        )
    given = entry[key] if isinstance(entry[key], list) else [entry[key]]
    raw = [each.get("raw") if isinstance(each, dict) else each for each in given]
    return entry | {"captions": [each if isinstance(each, str) else "" for each in raw]}


def _add(source: Source, picture: Picture, entry: dict[str, Any], below: str, where: str) -> None:
    """Add what a line says to its picture."""
    picture.captions += entry["captions"]
    folder = below.partition("/")[0]
    if entry.get("split") not in (None, ""):
        source.set_split(picture, entry["split"], where)
    elif folder.lower() in SPLIT_NAMES:
        source.set_split(picture, folder, where)
    objects = entry.get("objects")
    boxes = objects.get("bbox") if isinstance(objects, dict) else objects
    if isinstance(objects, dict) and isinstance(boxes, list):
        source.add_boxes(picture, boxes)
    elif boxes is not None:
        source.complain('objects without a list "bbox"', f"{picture.file} ({where}: {str(boxes)[:60]})")
