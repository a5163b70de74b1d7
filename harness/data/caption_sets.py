"""Read several captions of each image, in COCO's results format with an entry for each."""

from __future__ import annotations

from pathlib import Path

from harness.data.formats import is_image_id
from harness.utils.errors import BenchError
from harness.utils.json_io import read_json

_FORMAT = 'it is a list of {"image_id": 1, "caption": "a dog"}, with several entries of an image'


def read_caption_sets(path: Path) -> dict[int, list[str]]:
    """The captions of each image, in the file's order.

    Raises:
        BenchError: the file cannot be read or has another format.
    """
    content = read_json(path)
    if not isinstance(content, list):
        raise BenchError(f"--sets {path} is not in COCO's results format", _FORMAT)
    found: dict[int, list[str]] = {}
    for number, entry in enumerate(content):
        image_id = entry.get("image_id") if isinstance(entry, dict) else None
        caption = entry.get("caption") if isinstance(entry, dict) else None
        if not is_image_id(image_id) or not isinstance(caption, str):
            raise BenchError(f"--sets {path}: entry {number} has no image_id or no caption", _FORMAT)
        found.setdefault(image_id, []).append(caption)
    return found
