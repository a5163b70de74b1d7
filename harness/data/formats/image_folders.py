"""Folders of pictures with their captions: the hub's metadata files, and a text beside each picture."""

from pathlib import Path
from typing import Any, Final

from harness.data.dataset import annotated_size
from harness.data.formats.annotations import SPLIT_NAMES, Annotations, ReadOptions
from harness.data.formats.caption_tables import METADATA, add_table
from harness.data.formats.captions_by_image import caption_field_of, captions_of
from harness.data.formats.content import Content, read_content
from harness.data.formats.table import read_table
from harness.data.formats.text import lines_of, read_encoded
from harness.utils.errors import BenchError

PICTURES: Final = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")


def metadata_files(folder: Path) -> list[Path]:
    """The metadata file of the folder, or else those of its subfolders."""
    for name in METADATA:
        if (folder / name).is_file():
            return [folder / name]
        if below := sorted(folder.glob(f"*/{name}")):
            return below
    return []


def sniff_imagefolder(content: Content) -> str:
    """Recognise a folder with metadata.jsonl or metadata.csv in it or its subfolders, or such a file itself."""
    folder = _folder(content)
    files = metadata_files(folder) if folder is not None else []
    return f"it has {files[0].relative_to(folder)}" if folder is not None and files else ""


def read_imagefolder(content: Content, options: ReadOptions) -> Annotations:
    """The pictures that the metadata name, as data sets of the Hugging Face Hub have it.

    A split is the line's `split`, or that of its folder. A caption is a text, or a list of them. `objects.bbox` is x,
    y, width, height in pixels.

    Raises:
        BenchError: a line names no file or has no caption, or several fields hold different captions.
    """
    folder = _folder(content) or content.path
    annotations = Annotations(content.path)
    files = [content.path] if content.path.name in METADATA and not content.is_folder else metadata_files(folder)
    for file in files:
        below = file.parent.relative_to(folder).as_posix()
        inside = "" if below == "." else f"{below}/"
        if file.suffix == ".csv":
            add_table(annotations, read_table(file), options, inside)
        else:
            _add_lines(annotations, file, options, inside)
    return annotations


def sniff_pairs(content: Content) -> str:
    """Recognise a folder of pictures, each with a text file of the same name."""
    if not content.is_folder or metadata_files(content.path):
        return ""
    texts = {path.with_suffix("") for path in content.path.glob("**/*.txt")}
    pictures = [path for path in content.path.glob("**/*") if path.suffix.lower() in PICTURES]
    paired = sum(path.with_suffix("") in texts for path in pictures)
    return f"{paired} of its {len(pictures)} pictures have a .txt of their name" if paired * 2 > len(pictures) else ""


def read_pairs(content: Content, options: ReadOptions) -> Annotations:  # noqa: ARG001
    """Read each picture's captions from the lines of its text file; a folder named like a split is that split."""
    annotations = Annotations(content.path)
    without = 0
    for path in sorted(content.path.glob("**/*")):
        if path.suffix.lower() not in PICTURES:
            continue
        text = path.with_suffix(".txt")
        if not text.is_file():
            without += 1
            continue
        file = path.relative_to(content.path).as_posix()
        image = annotations.image(file, file)
        image.captions += [line for line in lines_of(read_encoded(text)) if line.strip()]
        if (split := file.partition("/")[0]).lower() in SPLIT_NAMES:
            annotations.set_split(image, split, file)
    if without:
        annotations.notes.append(f"left out: {without} pictures without a text")
    return annotations


def _folder(content: Content) -> Path | None:
    if content.is_folder:
        return content.path
    return content.path.parent if content.path.name in METADATA else None


def _add_lines(annotations: Annotations, file: Path, options: ReadOptions, inside: str) -> None:
    content = read_content(file)
    entries = content.entries or ([content.top] if content.top else [])
    file_field = options.image_field or "file_name"
    if not entries or not all(isinstance(entry.get(file_field), str) for entry in entries):
        line_number = next((n for n, entry in enumerate(entries, 1) if not isinstance(entry.get(file_field), str)), 1)
        raise BenchError(
            f'{file}, line {line_number} has no text "{file_field}"',
            'a line is {"file_name": "a.jpg", "caption": "a dog"}, as imagefolder has it',
        )
    caption_field = caption_field_of(file, entries, options)
    for line_number, entry in enumerate(entries, 1):
        where = f"line {line_number}"
        name = inside + entry[file_field].replace("\\", "/")
        image = annotations.image(name, name)
        image.size = image.size or annotated_size(entry)
        texts = captions_of(entry.get(caption_field))
        if not texts:
            annotations.add_problem("lines without a caption", f"{file.name} {where}")
        image.captions += texts
        if entry.get("split") not in (None, ""):
            annotations.set_split(image, entry["split"], where)
        elif (top := name.removeprefix("./").partition("/")[0]).lower() in SPLIT_NAMES:
            annotations.set_split(image, top, where)
        _add_objects(annotations, name, entry.get("objects"), where)


def _add_objects(annotations: Annotations, name: str, objects: Any, where: str) -> None:
    boxes = objects.get("bbox") if isinstance(objects, dict) else objects
    if isinstance(objects, dict) and isinstance(boxes, list):
        annotations.add_boxes(annotations.images[name], boxes)
    elif boxes is not None:
        annotations.add_problem('objects without a list "bbox"', f"{name} ({where}: {str(boxes)[:60]})")
