"""COCO's own format: captions_*.json, and instances_*.json for the boxes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.data.convert.source import SPLIT_NAMES, Picture, Source
from harness.data.dataset import told_size
from harness.data.formats import is_image_id
from harness.utils.errors import BenchError
from harness.utils.json_io import read_json

_PARTS = re.compile(r"[a-z]+|\d+")


def read_coco(files: Sequence[Path], instances: Sequence[Path], images: Path) -> Source:
    """The captions of COCO's files, with boxes of others.

    A split is read off a file's name (captions_val2014.json). Pictures are looked for below `images`, and there in the
    folder of the name's end (val2014).

    Raises:
        BenchError: a file cannot be read or has another format.
    """
    source, by_id = Source(), {}
    for file in files:
        content = _content(file)
        split = next((SPLIT_NAMES[part] for part in _PARTS.findall(file.name.lower()) if part in SPLIT_NAMES), None)
        folder = file.name.partition(".")[0].rpartition("_")[2]
        for number, entry in enumerate(content["images"]):
            picture = _picture(entry, split, folder, images)
            if picture is None:
                source.complain('entries without "id" or "file_name"', f"{file.name}: entry {number}")
            elif picture.image_id in by_id:
                source.complain("pictures with an id that another has", f"{file.name}: {picture.file}")
            else:
                source.pictures.append(picture)
                by_id[picture.image_id] = picture
        for entry in content["annotations"]:
            owner = by_id.get(_image_of(entry))
            caption = entry.get("caption") if isinstance(entry, dict) else None
            if owner is None or not isinstance(caption, str):
                source.complain("annotations without a caption or an image", f"{file.name}: {_label(entry)}")
            else:
                owner.captions.append(caption)
    for file in instances:
        _add_instances(source, by_id, _content(file))
    return source


def _add_instances(source: Source, by_id: dict[int | None, Picture], content: dict[str, Any]) -> None:
    for entry in content["images"]:  # an image without any box is known to have none
        if isinstance(entry, dict) and is_image_id(entry.get("id")) and (owner := by_id.get(entry["id"])):
            owner.boxes = owner.boxes or []
            owner.size = owner.size or told_size(entry)
    for entry in content["annotations"]:
        if owner := by_id.get(_image_of(entry)):
            source.add_boxes(owner, [entry.get("bbox")])


def _content(file: Path) -> dict[str, Any]:
    content = read_json(file)
    if not isinstance(content, dict) or not all(
        isinstance(content.get(key), list) for key in ("images", "annotations")
    ):
        raise BenchError(
            f'{file} is not in COCO\'s format: it has no lists "images" and "annotations"',
            "give captions_*.json, and instances_*.json with --instances; Karpathy's own JSON needs no conversion",
        )
    return content


def _picture(entry: Any, split: str | None, folder: str, images: Path) -> Picture | None:
    if not isinstance(entry, dict) or not is_image_id(entry.get("id")) or not isinstance(entry.get("file_name"), str):
        return None
    name = entry["file_name"]
    inside = f"{folder}/{name}"
    file = inside if not (images / name).is_file() and (images / inside).is_file() else name
    return Picture(file, image_id=entry["id"], split=split, size=told_size(entry))


def _image_of(entry: Any) -> int | None:
    image_id = entry.get("image_id") if isinstance(entry, dict) else None
    return image_id if is_image_id(image_id) else None


def _label(entry: Any) -> str:
    return str(entry.get("id", "no id"))[:40] if isinstance(entry, dict) else "no object"
