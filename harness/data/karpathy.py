"""Read data sets in the JSON of Karpathy and Fei-Fei (CVPR 2015), with an image folder.

Annotations of another format are references alone: their test split, or all where they name none, to score captions
against; `bench data convert` makes a data set of them. The lists of images that evaluation servers publish are one
split too, without captions.

`{"dataset": NAME, "images": [{"filename", "filepath"?, "cocoid"? or "imgid", "split", "sentences": [{"raw"}]}]}`, and
optional keys of an image: "domain" (as nocaps has), "boxes" (x1, y1, x2, y2 in pixels), "width" and "height". Faults
of the file raise an error; faults of single images are collected in `Dataset.faults`, to be reported together.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shlex
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness.data.dataset import Box, Dataset, Sample, fingerprint, told_size
from harness.data.formats.annotations import SPLIT_NAMES
from harness.data.formats.content import Content, read_content
from harness.data.formats.ids import image_ids, named
from harness.data.formats.karpathy_json import id_key, images_of, sentences_of
from harness.data.formats.references import references_from, sanitise_caption
from harness.data.formats.registry import ANNOTATION_FORMATS, find_format, read_as, single_file
from harness.data.sources import load_sources
from harness.utils.errors import BenchError
from harness.utils.files import RefusedPath, plain_path, require_file
from harness.utils.json_io import read_json

SPLITS = {**SPLIT_NAMES, "restval": "train", "nocaps": "nocaps"}


def read_karpathy(
    location: Path, *, images: Path | None = None, name: str | None = None, may_be_references: bool = True
) -> Dataset:
    """Read a data set from an annotation file, or a folder that holds one dataset*.json or .json.gz.

    The image folder is by default "images" beside the annotations, or else their own folder. Within it, the image's
    "filepath" is tried first. BenchError where it does not exist or is in no known format, an id is missing or used
    twice, or a split is unknown; without `may_be_references` also where it is in another format than COCO's.
    """
    file = annotation_file(location)
    read = read_content(file)
    content = _of_server(read.value)
    if images_of(content) is None or "annotations" in content:
        if not may_be_references and "annotations" not in read.top:
            find_format(read)
            raise _to_convert(file, images)
        return _references_alone(read, picture_folder(file, images), _conversion(file, images))
    entries, ids = _entries(file, content)
    paths = PicturePaths(picture_folder(file, images))
    splits = _splits(file, entries)
    faults: dict[int, str] = {}
    samples = tuple(
        _sample(entry, image_id, split, paths, faults)
        for entry, image_id, split in zip(entries, ids, splits, strict=True)
    )
    title = name or content.get("dataset")
    return Dataset(
        name=title if isinstance(title, str) and title.isprintable() else file.name.partition(".")[0],
        root=paths.root,
        samples=samples,
        fingerprint=fingerprint(paths.root, samples, faults),
        faults=faults,
        sizes={image_id: size for image_id, entry in zip(ids, entries, strict=True) if (size := told_size(entry))},
        absent_files=tuple(paths.absent),
    )


def refuse_other_formats(file: Path, images: Path | None) -> None:
    """BenchError for a table, lines or a list, which cannot be trained on, with the conversion; others are not read."""
    with file.open("rb") as content:
        start = content.read(64).lstrip(b"\xef\xbb\xbf \r\n\t")
    may_be_karpathys = start[:1] in (b"", b"{", b"\x1f") or start.startswith((BOM_UTF16_LE, BOM_UTF16_BE))
    if not may_be_karpathys or file.suffix == ".jsonl":
        raise _to_convert(file, images)


def _to_convert(file: Path, images: Path | None) -> BenchError:
    return BenchError(f"{file} is not in Karpathy's format", f"write it in that: {_conversion(file, images)}")


def _of_server(content: Any) -> Any:
    """A server's list of images, {"images": [{"id", "file_name"}]}, as one split, named test; else what was given."""
    entries = images_of(content)
    if entries is None or not all(
        {"id", "file_name"} <= entry.keys() and not {"split", "imgid"} & entry.keys() for entry in entries
    ):
        return content
    return content | {"images": [{**entry, "cocoid": entry["id"], "split": "test"} for entry in entries]}


def read_entries(file: Path) -> tuple[dict[str, Any], list[dict[str, Any]], list[int]]:
    """The content of an annotation file, its image entries, and their ids; BenchError as `read_karpathy`."""
    content = read_json(file)
    return content, *_entries(file, content)


def _entries(file: Path, content: Any) -> tuple[list[dict[str, Any]], list[int]]:
    if (entries := images_of(content)) is None:
        raise BenchError(
            f'{file} is not in Karpathy\'s format: it has no list of objects named "images" but {_top(content)}',
            _conversion(file),
        )
    if "annotations" in content:
        raise BenchError(
            f"{file} is in COCO's own format, which names no splits",
            hint="give Karpathy's file of it (dataset_coco.json); bench data nocaps adds nocaps's captions to one",
        )
    if not entries:
        raise BenchError(f"{file} lists no images")
    return entries, image_ids(file, entries, id_key(entries))


def _top(content: Any) -> str:
    return ", ".join(map(str, content))[:100] if isinstance(content, dict) else f"a {type(content).__name__}"


_KARPATHY_TEST = "e4105a76a6d00c29"
"""Digest of the sorted ids of COCO's Karpathy test split, which many files of other names hold."""


def _references_alone(content: Content, root: Path, conversion: str) -> Dataset:
    """Annotations of another format: one split, named test, with pictures below `root`, by name or COCO's id."""
    file, annotations = content.path, read_as(find_format(content), content)
    splits = {image.split for image in annotations.images.values()} - {None}
    if splits and "test" not in splits:
        raise BenchError(
            f"{file} has no test split, but {', '.join(sorted(map(str, splits)))}",
            f"split it anew: {conversion} --split-by hash:80/10/10",
        )
    references, paths = references_from(annotations), PicturePaths(root)
    is_test = hashlib.sha256(json.dumps(sorted(references.captions)).encode()).hexdigest().startswith(_KARPATHY_TEST)

    def place(image_id: int) -> str:
        told = references.files.get(image_id)
        for name in (told,) if told else (f"COCO_val2014_{image_id:012d}.jpg", f"{image_id:012d}.jpg"):
            with suppress(RefusedPath):
                if told or (root / name).is_file():
                    return paths.claim(name, None, image_id)
        return ""

    samples = tuple(
        Sample(image_id, place(image_id), "test", tuple(map(_collapsed, captions)), references.domains.get(image_id))
        for image_id, captions in references.captions.items()
    )
    name = "coco" if is_test else references.name
    return Dataset(
        name=name,
        root=root,
        samples=samples,
        fingerprint=fingerprint(root, samples, {}),
        labels=references.labels,
        notes=references.notes,
        conversion=conversion,
    )


def _conversion(file: Path, images: Path | None = None) -> str:
    """The command that makes a data set of annotations in another format."""
    if images is None and (file.parent / "images").is_dir():
        images = file.parent / "images"
    where = [] if images is None else ["--images", str(images)]
    out = f"dataset_{file.name.partition('.')[0]}.json"
    return shlex.join(["bench", "data", "convert", str(file), *where, "--out", out])


def annotation_file(location: Path) -> Path:
    """The annotation file that a location names, or that its folder holds; BenchError if it is none, or several."""
    if location.is_file():
        return location
    if not location.is_dir():
        if location.exists():
            require_file(location, "the data set", "name an annotation file, or a folder that holds one")
        hint = "give scenes, a folder with dataset*.json and images/, or an annotation file with --images DIR"
        if location.name in load_sources():
            hint = f"`bench data download {location.name}` fetches it; or name the folder that has it"
        raise BenchError(f"there is no data set at {location}", hint)
    found = sorted(path for pattern in ("dataset*.json", "dataset*.json.gz") for path in location.glob(pattern))
    if not found:
        hint = "name the annotation file itself, and the image folder with --images DIR"
        table = single_file(location)
        if table != location or any(one.sniff(Content(location)) for one in ANNOTATION_FORMATS):
            words = ["bench", "data", "convert", str(location), "--out", str(location / "dataset.json")]
            hint = f"write one: {shlex.join(words)}"
        raise BenchError(f"the folder {location} holds no dataset*.json or dataset*.json.gz in Karpathy's format", hint)
    if len(found) > 1:
        raise BenchError(
            f"the folder {location} holds several annotation files: {', '.join(path.name for path in found)}",
            hint=f"name the one that is meant: {found[0]}",
        )
    return found[0]


def picture_folder(file: Path, images: Path | None) -> Path:
    home = file.parent.resolve()
    if images is None:
        folder = (home / "images").resolve() if (home / "images").is_dir() else home
        if not folder.is_relative_to(home):
            raise BenchError(
                f"{home / 'images'} is a link to {folder}, outside the data set",
                hint=f"if that is meant, say so: --images {folder}",
            )
        return folder
    if not images.is_dir():
        raise BenchError(f"the image folder {images} does not exist", hint="give another with --images DIR")
    return images.resolve()


def _splits(file: Path, entries: list[dict[str, Any]]) -> list[str]:
    unknown = []
    for number, entry in enumerate(entries):
        split, name = entry.get("split"), entry.get("filename", entry.get("file_name"))
        if not isinstance(split, str) or split not in SPLITS:
            label = name if isinstance(name, str) and name.isprintable() and name else f"entry {number}"
            unknown.append(f"{label} ({split!r})")
    if unknown:
        what = f"whose split is none of {', '.join(SPLITS)}"
        raise BenchError(f"{file}: {named(unknown, what)}")
    return [SPLITS[entry["split"]] for entry in entries]


def _sample(entry: Mapping[str, Any], image_id: int, split: str, paths: PicturePaths, faults: dict[int, str]) -> Sample:
    """One image; what makes it unusable goes to `faults`."""
    reasons = []
    name = entry.get("filename", entry.get("file_name"))
    try:
        file = paths.claim(name, entry.get("filepath"), image_id)
    except RefusedPath as refusal:
        file = ""
        reasons.append(str(refusal))
    captions, tokens = _captions(entry)
    if not captions:
        reasons.append(f"{name!r} has no sentences")
    domain, boxes = entry.get("domain"), None
    if not (domain is None or (isinstance(domain, str) and domain.isprintable())):
        reasons.append(f"the domain of {name!r} is not a plain text")
        domain = None
    if entry.get("boxes") is not None:
        try:
            boxes = tuple(_box(box) for box in entry["boxes"])
        except (OverflowError, TypeError, ValueError):
            what = "not lists of x1, y1, x2, y2 with x1 <= x2 and y1 <= y2 (x2 is x + width)"
            reasons.append(f"the boxes of {name!r} are {what}")
    if reasons:
        faults[image_id] = "; ".join(reasons)
    return Sample(image_id, file, split, captions, domain, boxes, tokens, entry["split"] == "restval")


def _captions(entry: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
    """The sentences' raw texts, white space collapsed, and their tokens, if all have some; empty ones are dropped."""
    pairs = [(_collapsed(each["raw"]), _tokens(each.get("tokens"))) for each in sentences_of(entry)]
    pairs = [pair for pair in pairs if pair[0]]
    tokens = tuple(own for _, own in pairs if own is not None)
    return tuple(text for text, _ in pairs), tokens if pairs and len(tokens) == len(pairs) else None


def _tokens(tokens: object) -> str | None:
    """A sentence's own tokens, joined by spaces; None where it has none."""
    if not isinstance(tokens, list):
        return None
    try:
        return _collapsed(" ".join(tokens))
    except TypeError:  # not all are texts
        return None


def _collapsed(text: str) -> str:
    return " ".join(sanitise_caption(text).split())


def _box(box: Any) -> Box:
    x1, y1, x2, y2 = (float(edge) for edge in box)
    if not (-math.inf < x1 <= x2 < math.inf and -math.inf < y1 <= y2 < math.inf):
        raise ValueError("no corners")
    return x1, y1, x2, y2


class PicturePaths:
    """Assigns each image its file below `root` (a resolved folder), and no file to two images."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.absent: list[str] = []
        self._owners: dict[str, int] = {}
        self._inside: dict[str, bool] = {}

    def claim(self, name: object, folder: object, image_id: int) -> str:
        """The relative path of the image file: `folder`/`name` if that exists, else `name`.

        The file is not opened: a missing one keeps its path. RefusedPath for no name, one that is absolute or has "..",
        a link that leads out of `root`, or the file of an earlier image.
        """
        if not isinstance(name, str) or not name:
            raise RefusedPath("its entry names no image file")
        candidates = [plain_path(name)]
        if isinstance(folder, str) and folder:
            candidates.insert(0, plain_path(f"{folder}/{name}"))
        file = candidates[-1]
        for path in candidates:
            if os.path.lexists(f"{self.root}/{path}"):
                file = path
                break
            self.absent.append(path)
        self.check_inside(file)
        owner = self._owners.setdefault(file, image_id)
        if owner != image_id:
            raise RefusedPath(f"{file!r} is already the file of image {owner}")
        return file

    def check_inside(self, file: str) -> None:
        """RefusedPath where the file, with all links followed, lies outside the root; each folder is resolved once."""
        path = f"{self.root}/{file}"
        folder = path.rpartition("/")[0]
        if folder not in self._inside:
            self._inside[folder] = self._leads_inside(folder)
        if not self._inside[folder] or (os.path.islink(path) and not self._leads_inside(path)):  # noqa: PTH114
            raise RefusedPath(f"{file!r} is a link that leads out of the data set's folder")

    def _leads_inside(self, path: str) -> bool:
        return Path(os.path.realpath(path)).is_relative_to(self.root)  # `resolve` would raise on links in a circle
