"""Boxes without features: the data set's own, windows, COCO's `instances_*.json`, or a detector's COCO results.

The features are pooled from a backbone's map (`harness.data.regions.cache`). An image without any box gets one region,
the whole image, and is counted as such.
"""

import hashlib
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from harness.data.dataset import Dataset, told_size
from harness.data.formats import is_image_id
from harness.data.regions.regions import BadRegions, Numbers, RawRegions, RegionSource, size_of
from harness.utils.errors import BenchError
from harness.utils.json_io import parse_json, read_file


class DatasetBoxes(RegionSource):
    """The boxes in a data set's annotations, in pixels of the stored image."""

    boxes_only = True
    name = "boxes"

    def __init__(self, dataset: Dataset) -> None:
        self._boxes = {sample.image_id: sample.boxes for sample in dataset.samples}
        if not any(self._boxes.values()):
            raise BenchError(
                f"the data set {dataset.name} has no boxes of its own (--regions boxes)",
                "give COCO's instances_*.json or a detector's results: --regions FILE.json",
            )
        self.fingerprint = dataset.fingerprint

    def image(self, image_id: int) -> RawRegions:
        """See `RegionSource`."""
        return RawRegions(boxes=_rows(self._boxes[image_id] or ()))


class Windows(RegionSource):
    """The whole image, and the tiles of N rows and N columns: the same for every image, for data without boxes."""

    boxes_only = True

    def __init__(self, dataset: Dataset, side: int) -> None:
        self.name = self.fingerprint = f"windows:{side}"
        tiles = [(column, row, column + 1, row + 1) for row in range(side) for column in range(side)]
        self._shares = np.array([(0, 0, side, side), *tiles]) / side
        self._dataset, self._samples = dataset, {sample.image_id: sample for sample in dataset.samples}

    def image(self, image_id: int) -> RawRegions:
        """See `RegionSource`."""
        size = size_of(self._samples[image_id], self._dataset)
        return RawRegions(boxes=self._shares * np.array([*size, *size]), size=size)


class CocoBoxes(RegionSource):
    """A JSON file in COCO's format: {"images", "annotations"}, or a list of {"image_id", "bbox", "score"}.

    `bbox` is x, y, width, height in pixels. Crowds count as regions. The file is held in memory as a whole.
    """

    boxes_only = True

    def __init__(self, path: Path, dataset: Dataset) -> None:
        self.name = path.name
        raw = read_file(path)
        content = parse_json(raw, path)
        self.fingerprint = hashlib.sha256(raw).hexdigest()
        entries, images = _entries(path, content)
        known = [image for image in images if isinstance(image, dict) and is_image_id(image.get("id"))]
        self._sizes = {image["id"]: told_size(image) for image in known}
        self._boxes: dict[int, list[dict[str, Any]]] = {}
        for entry in entries:
            told = {key: entry[key] for key in ("bbox", "score") if key in entry}
            self._boxes.setdefault(entry["image_id"], []).append(told)
        if not any(sample.image_id in self._boxes for sample in dataset.samples):
            raise BenchError(
                f"no image of {dataset.name} has a box in {path}",
                'the ids must be those of the data set ("cocoid", or else "imgid")',
            )

    def image(self, image_id: int) -> RawRegions:
        """See `RegionSource`."""
        boxes, scores = [], []
        for told in self._boxes.get(image_id, ()):
            try:
                x, y, width, height = (float(0 + number) for number in told["bbox"])  # no text is a number
                boxes.append((x, y, x + width, y + height))
                if "score" in told:
                    scores.append(float(0 + told["score"]))
                    if not math.isfinite(scores[-1]):
                        raise ValueError("no score")
            except (OverflowError, TypeError, ValueError) as error:
                raise BadRegions(f"has a bbox or score that is not a number: {str(told['bbox'])[:60]}") from error
        scored = np.array(scores) if len(scores) == len(boxes) > 0 else None
        return RawRegions(None, _rows(boxes), self._sizes.get(image_id), scored)


def _rows(boxes: Iterable[Sequence[float]]) -> Numbers:
    return np.array(list(boxes), dtype=np.float64).reshape(-1, 4)


def _entries(path: Path, content: Any) -> tuple[list[Any], list[Any]]:
    """The entries of the boxes, and those of the images if the file lists them."""
    entries = content.get("annotations") if isinstance(content, dict) else content
    images = content.get("images", []) if isinstance(content, dict) else []
    if not isinstance(entries, list) or not isinstance(images, list) or not all(map(_has_id, entries)):
        raise BenchError(
            f"{path} holds no boxes in COCO's format",
            'give {"images", "annotations"} as in instances_*.json, or a list of {"image_id", "bbox", "score"}',
        )
    return entries, images


def _has_id(entry: Any) -> bool:
    return isinstance(entry, dict) and is_image_id(entry.get("image_id")) and "bbox" in entry
