"""Read data sets in the JSON format of Karpathy and Fei-Fei (CVPR 2015), with an image folder.

`{"dataset": NAME, "images": [{"filename", "filepath"?, "cocoid"? or "imgid", "split", "sentences": [{"raw"}]}]}`, and
optional keys of an image: "domain" (as in nocaps), "boxes" (x1, y1, x2, y2 in pixels), "width" and "height". Faults
of the file raise an error; faults of single images are collected in `Dataset.faults`, to be reported together.

Annotations in other formats can only be used as references to score captions against (their test split, or all images
if they have no splits), unless they are converted with `bench data convert`. An evaluation server's list of images is
read as a test split without captions.
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

from harness.data.dataset import Box, Dataset, Sample, annotated_size, fingerprint
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

SPLIT_OF_NAME = {**SPLIT_NAMES, "restval": "train", "nocaps": "nocaps"}
"""The split that an image belongs to, by the name that the file gives it."""
_KARPATHY_TEST_DIGEST = "e4105a76a6d00c29"
"""Of the sorted ids of COCO's Karpathy test split, by which it is recognised in files of any name."""


def read_karpathy(
    location: Path, *, images: Path | None = None, name: str | None = None, any_format: bool = True
) -> Dataset:
    """Read a data set from an annotation file, or from a folder that contains one dataset*.json or .json.gz.

    Args:
        images: the image folder; by default the folder "images" beside the annotation file, or else the file's folder.
        name: the data set's name; by default that in the file.
        any_format: whether to read annotations in any known format, as references. If false, only Karpathy's and COCO's
            formats are read, COCO's as references.

    Raises:
        BenchError: the file does not exist or has no known format, an id is missing or used twice, a split is unknown,
            or the format would have to be converted.
    """
    file = annotation_file(location)
    content = read_content(file)
    value = _with_test_split_if_server_list(content.value)
    if images_of(value) is None or "annotations" in value:
        is_coco = "annotations" in content.top
        if not (any_format or is_coco):
            find_format(content)  # raises an error with its own hint where no format fits
            raise _other_format_error(file, images)
        return _read_references(content, picture_folder(file, images), _convert_command(file, images))
    entries, ids = _image_entries(file, value)
    paths = PicturePaths(picture_folder(file, images))
    splits = _splits(file, entries)
    faults: dict[int, str] = {}
    samples = tuple(
        _sample(entry, image_id, split, paths, faults)
        for entry, image_id, split in zip(entries, ids, splits, strict=True)
    )
    sizes = {image_id: annotated_size(entry) for image_id, entry in zip(ids, entries, strict=True)}
    title = name or value.get("dataset")
    return Dataset(
        name=title if isinstance(title, str) and title.isprintable() else file.name.partition(".")[0],
        root=paths.root,
        samples=samples,
        fingerprint=fingerprint(paths.root, samples, faults),
        faults=faults,
        sizes={image_id: size for image_id, size in sizes.items() if size is not None},
        absent_files=tuple(paths.absent),
    )


def refuse_non_json(file: Path, images: Path | None) -> None:
    """BenchError, with the command to convert it, if the first bytes or the suffix .jsonl rule out one JSON object."""
    with file.open("rb") as stream:
        start = stream.read(64).lstrip(b"\xef\xbb\xbf \r\n\t")
    is_json_object_or_gzip = start[:1] in (b"", b"{", b"\x1f") or start.startswith((BOM_UTF16_LE, BOM_UTF16_BE))
    if not is_json_object_or_gzip or file.suffix == ".jsonl":
        raise _other_format_error(file, images)


def _other_format_error(file: Path, images: Path | None) -> BenchError:
    return BenchError(f"{file} is not in Karpathy's format", f"convert it: {_convert_command(file, images)}")


def _with_test_split_if_server_list(content: Any) -> Any:
    """A server's list of images, {"images": [{"id", "file_name"}]}, as a test split; anything else unchanged."""
    entries = images_of(content)
    if entries is None:
        return content
    for entry in entries:
        if not {"id", "file_name"} <= entry.keys() or {"split", "imgid"} & entry.keys():
            return content
    return content | {"images": [{**entry, "cocoid": entry["id"], "split": "test"} for entry in entries]}


def read_entries(file: Path) -> tuple[dict[str, Any], list[dict[str, Any]], list[int]]:
    """The value of an annotation file in Karpathy's format, the entries of its images, and their ids.

    Raises:
        BenchError: the file is in another format, or an id is missing or used twice.
    """
    content = read_json(file)
    return content, *_image_entries(file, content)


def _image_entries(file: Path, content: Any) -> tuple[list[dict[str, Any]], list[int]]:
    """The entries of images in Karpathy's format, and their ids; BenchError where the content is in another format."""
    entries = images_of(content)
    if entries is None:
        if isinstance(content, dict):
            description = f"has the keys {', '.join(map(str, content))[:100]}"
        else:
            description = f"is a {type(content).__name__}"
        raise BenchError(
            f'{file} is not in Karpathy\'s format: it has no list of objects named "images", but {description}',
            _convert_command(file),
        )
    if "annotations" in content:
        raise BenchError(
            f"{file} is in COCO's own format, which has no splits",
            hint="give Karpathy's file for COCO (dataset_coco.json); `bench data nocaps` adds nocaps's captions to one",
        )
    if not entries:
        raise BenchError(f"{file} lists no images")
    return entries, image_ids(file, entries, id_key(entries))


def _read_references(content: Content, root: Path, convert_command: str) -> Dataset:
    """A data set of one split, named test, from annotations in another format than Karpathy's.

    Args:
        root: the image folder, in which files are found by their names or by COCO's ids.
        convert_command: the command that converts the annotations for training.
    """
    file = content.path
    annotations = read_as(find_format(content), content)
    splits = {image.split for image in annotations.images.values() if image.split is not None}
    if splits and "test" not in splits:
        raise BenchError(
            f"{file} has no test split, but {', '.join(sorted(splits))}",
            f"make new splits: {convert_command} --split-by hash:80/10/10",
        )
    references = references_from(annotations)
    paths = PicturePaths(root)
    ids = json.dumps(sorted(references.captions)).encode()
    is_karpathy_test = hashlib.sha256(ids).hexdigest().startswith(_KARPATHY_TEST_DIGEST)
    samples = tuple(
        Sample(
            image_id,
            _find_picture(image_id, references.files.get(image_id), paths),
            "test",
            tuple(map(_clean, captions)),
            references.domains.get(image_id),
        )
        for image_id, captions in references.captions.items()
    )
    return Dataset(
        name="coco" if is_karpathy_test else references.name,
        root=root,
        samples=samples,
        fingerprint=fingerprint(root, samples, {}),
        labels=references.labels,
        notes=references.notes,
        conversion=convert_command,
    )


def _find_picture(image_id: int, file_name: str | None, paths: PicturePaths) -> str:
    """The relative path of an image: its file name if known, else COCO's name for its id; empty if neither works."""
    if file_name:
        candidates = [file_name]
    else:
        coco_names = (f"COCO_val2014_{image_id:012d}.jpg", f"{image_id:012d}.jpg")
        candidates = [name for name in coco_names if (paths.root / name).is_file()]
    for name in candidates:
        with suppress(RefusedPath):
            return paths.claim(name, None, image_id)
    return ""


def _convert_command(file: Path, images: Path | None = None) -> str:
    """The `bench data convert` command for annotations in another format."""
    if images is None and (file.parent / "images").is_dir():
        images = file.parent / "images"
    options = [] if images is None else ["--images", str(images)]
    out = f"dataset_{file.name.partition('.')[0]}.json"
    return shlex.join(["bench", "data", "convert", str(file), *options, "--out", out])


def annotation_file(location: Path) -> Path:
    """The annotation file at `location`, or the only one in that folder; BenchError if there is none, or several."""
    if location.is_file():
        return location
    if not location.is_dir():
        if location.exists():
            # Raises: it is neither a file nor a folder.
            require_file(location, "the data set", "name an annotation file, or a folder that contains one")
        hint = "give scenes, a folder with dataset*.json and images/, or an annotation file with --images DIR"
        if location.name in load_sources():
            hint = f"`bench data download {location.name}` fetches it; or name the folder that has it"
        raise BenchError(f"there is no data set at {location}", hint)
    files = sorted([*location.glob("dataset*.json"), *location.glob("dataset*.json.gz")])
    if not files:
        hint = "name the annotation file itself, and the image folder with --images DIR"
        is_table = single_file(location) != location  # the one table of captions in the folder
        if is_table or any(format_.sniff(Content(location)) for format_ in ANNOTATION_FORMATS):
            command = ["bench", "data", "convert", str(location), "--out", str(location / "dataset.json")]
            hint = f"write one: {shlex.join(command)}"
        raise BenchError(
            f"the folder {location} contains no dataset*.json or dataset*.json.gz in Karpathy's format", hint
        )
    if len(files) > 1:
        raise BenchError(
            f"the folder {location} contains several annotation files: {', '.join(path.name for path in files)}",
            hint=f"name one of them: {files[0]}",
        )
    return files[0]


def picture_folder(file: Path, images: Path | None) -> Path:
    """The image folder of an annotation file, resolved; BenchError where it does not exist.

    By default "images" beside the file, or else the file's folder. That "images" may not be a link to a folder
    elsewhere.
    """
    if images is not None:
        if not images.is_dir():
            raise BenchError(f"the image folder {images} does not exist", hint="give another with --images DIR")
        return images.resolve()
    home = file.parent.resolve()
    if not (home / "images").is_dir():
        return home
    folder = (home / "images").resolve()
    if not folder.is_relative_to(home):
        raise BenchError(
            f"{home / 'images'} is a link to {folder}, outside the data set",
            hint=f"to use that folder: --images {folder}",
        )
    return folder


def _splits(file: Path, entries: list[dict[str, Any]]) -> list[str]:
    """The split of each entry; BenchError where one is unknown."""
    unknown = []
    for index, entry in enumerate(entries):
        split = entry.get("split")
        name = entry.get("filename", entry.get("file_name"))
        if not isinstance(split, str) or split not in SPLIT_OF_NAME:
            label = name if isinstance(name, str) and name.isprintable() and name else f"entry {index}"
            unknown.append(f"{label} ({split!r})")
    if unknown:
        raise BenchError(f"{file}: {named(unknown, 'whose split is none of ' + ', '.join(SPLIT_OF_NAME))}")
    return [SPLIT_OF_NAME[entry["split"]] for entry in entries]


def _sample(entry: Mapping[str, Any], image_id: int, split: str, paths: PicturePaths, faults: dict[int, str]) -> Sample:
    """The sample of an image's entry; if it has faults, they are added to `faults`."""
    reasons = []
    name = entry.get("filename", entry.get("file_name"))
    try:
        file = paths.claim(name, entry.get("filepath"), image_id)
    except RefusedPath as refusal:
        file = ""
        reasons.append(str(refusal))
    captions, tokenised = _captions(entry)
    if not captions:
        reasons.append(f"{name!r} has no sentences")
    domain = entry.get("domain")
    if not (domain is None or (isinstance(domain, str) and domain.isprintable())):
        reasons.append(f"the domain of {name!r} is not a plain text")
        domain = None
    boxes = None
    if entry.get("boxes") is not None:
        try:
            boxes = tuple(_box(box) for box in entry["boxes"])
        except (OverflowError, TypeError, ValueError):
            expected = "lists of x1, y1, x2, y2 with x1 <= x2 and y1 <= y2 (x2 is x + width)"
            reasons.append(f"the boxes of {name!r} are not {expected}")
    if reasons:
        faults[image_id] = "; ".join(reasons)
    return Sample(
        image_id,
        file,
        split,
        captions,
        domain=domain,
        boxes=boxes,
        tokens=tokenised,
        restval=entry["split"] == "restval",
    )


def _captions(entry: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
    """The non-empty captions of an entry, cleaned, and their tokens joined by spaces; None if a caption has none."""
    captions = []
    tokenised = []
    for sentence in sentences_of(entry):
        caption = _clean(sentence["raw"])
        if caption:
            captions.append(caption)
            text = _joined_tokens(sentence.get("tokens"))
            if text is not None:
                tokenised.append(text)
    if not captions or len(tokenised) < len(captions):
        return tuple(captions), None
    return tuple(captions), tuple(tokenised)


def _joined_tokens(tokens: object) -> str | None:
    """The tokens of a sentence, joined by spaces; None where it has no list of texts."""
    if not isinstance(tokens, list):
        return None
    try:
        return _clean(" ".join(tokens))
    except TypeError:  # not all are texts
        return None


def _clean(text: str) -> str:
    """The text without control characters, and with single spaces."""
    return " ".join(sanitise_caption(text).split())


def _box(box: Any) -> Box:
    """The corners of a box; OverflowError, TypeError or ValueError where it is none."""
    x1, y1, x2, y2 = (float(edge) for edge in box)
    if not (-math.inf < x1 <= x2 < math.inf and -math.inf < y1 <= y2 < math.inf):
        raise ValueError("corners out of order, or not finite")
    return x1, y1, x2, y2


class PicturePaths:
    """Assigns each image a file below `root`, a resolved folder, and never the same file to two images.

    Attributes:
        absent: paths at which `claim` looked for a file and found none; if one appears later, the data set changes.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.absent: list[str] = []
        self._owners: dict[str, int] = {}
        self._is_inside_by_folder: dict[str, bool] = {}

    def claim(self, name: object, folder: object, image_id: int) -> str:
        """The relative path of an image's file: `folder`/`name` if that exists, else `name`, even if it is missing.

        Raises:
            RefusedPath: the name is empty, absolute or has "..", the file is a link that leads out of `root`, or it
                is the file of an earlier image.
        """
        if not isinstance(name, str) or not name:
            raise RefusedPath("its entry has no file name")
        candidates = [plain_path(name)]
        if isinstance(folder, str) and folder:
            candidates.insert(0, plain_path(f"{folder}/{name}"))
        file = candidates[-1]  # if none exists
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
        """RefusedPath where the file is outside the root after following all links. Results are cached by folder."""
        path = f"{self.root}/{file}"
        folder = path.rpartition("/")[0]
        if folder not in self._is_inside_by_folder:
            self._is_inside_by_folder[folder] = self._leads_inside(folder)
        if not self._is_inside_by_folder[folder] or (os.path.islink(path) and not self._leads_inside(path)):  # noqa: PTH114
            raise RefusedPath(f"{file!r} is a link that leads out of the data set's folder")

    def _leads_inside(self, path: str) -> bool:
        return Path(os.path.realpath(path)).is_relative_to(self.root)  # `Path.resolve` raises on circular links
