"""Other formats in Karpathy's: COCO's captions, a CSV, an imagefolder; their pictures are checked and split."""

import csv
import hashlib
import io
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.data.dataset import Box, told_size
from harness.data.formats.references import is_image_id, sanitise_caption
from harness.data.karpathy import PicturePaths, RefusedPath, plain_path
from harness.utils.errors import BenchError
from harness.utils.files import absolute, shortened
from harness.utils.json_io import read_json
from harness.utils.storage import sha256_of
from results.files import load_json, read_text

SPLIT_NAMES = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
    "test": "test",
    "restval": "restval",
}
_SOURCE, _HASH = "source", "hash:80/10/10"
_SPLITS = ("train", "val", "test")
_TABLES = (".csv", ".tsv")
_METADATA = "metadata.jsonl"
_FILE_COLUMNS = ("file", "file_name", "filename", "image", "image_name")
_CAPTION_COLUMNS = ("caption", "text", "comment", "sentence", "raw")
_CAPTION_KEYS = ("text", "caption", "captions", "sentences")
_DELIMITERS = ",;\t|"
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
    boxes: list[Box] | None = None
    size: tuple[int, int] | None = None
    usable: bool = True


@dataclass(slots=True)
class Source:
    """The pictures of a source by file or id, in its order, and by problem the files or entries that it concerns."""

    pictures: dict[object, Picture] = field(default_factory=dict)
    problems: dict[str, list[str]] = field(default_factory=dict)

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
    """The pictures of COCO's JSON, a CSV or an imagefolder, and their folder; BenchError where `given` is none."""
    first = given[0]
    coco = all(path.name.endswith((".json", ".json.gz")) for path in given)
    if instances and not coco:
        raise BenchError("--instances adds boxes to COCO's captions, and these are no captions_*.json", "leave it out")
    if coco:
        folder = images or first.absolute().parent
        return _read_coco(given, instances, folder), folder
    if len(given) > 1:
        raise BenchError(f"SOURCE: {len(given)} are given, and only COCO's captions come in several files", "give one")
    if first.is_dir() and _metadata_files(first):
        return _read_imagefolder(first, caption_column), images or first
    if first.is_file() and first.name == _METADATA:
        return _read_imagefolder(first.parent, caption_column), images or first.absolute().parent
    tables = sorted(path for end in _TABLES for path in first.glob(f"*{end}")) if first.is_dir() else [first]
    if len(tables) != 1 or tables[0].suffix.lower() not in _TABLES:
        held = f"holds {', '.join(path.name for path in tables)}" if len(tables) > 1 else "is none of the known formats"
        raise BenchError(
            f"SOURCE {first} {held}",
            f"give COCO's captions_*.json, a CSV or a folder with one, or a folder with {_METADATA}",
        )
    return _read_table(tables[0], file_column, caption_column), images or tables[0].absolute().parent


def _read_table(path: Path, file_column: str | None, caption_column: str | None) -> Source:
    """The pictures of a CSV, with or without a column `split`, by the delimiter that its header has most of."""
    text = read_text(path).removeprefix("\ufeff")
    delimiter = max(_DELIMITERS, key=text.partition("\n")[0].count)
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True, strict=True)
    source = Source()
    try:
        names = [name.strip() for name in next(rows, [])]
        file_at = _column(path, names, file_column, _FILE_COLUMNS, "--file-column")
        caption_at = _column(path, names, caption_column, _CAPTION_COLUMNS, "--caption-column")
        split_at = names.index("split") if "split" in names else None
        for row in rows:
            if not row:
                continue
            if len(row) != len(names) or not row[file_at].strip():
                source.complain("lines with another number of fields, or no file", f"line {rows.line_num}")
                continue
            picture = source.pictures.setdefault(file := row[file_at].strip(), Picture(file))
            picture.captions.append(row[caption_at])
            if split_at is not None and row[split_at].strip():
                source.set_split(picture, row[split_at], f"line {rows.line_num}")
    except csv.Error as error:
        raise BenchError(f"{path}, line {rows.line_num}: {error}", "quote fields that hold the delimiter") from error
    return source


def _column(path: Path, names: list[str], chosen: str | None, known: Sequence[str], option: str) -> int:
    wanted = known if chosen is None else [chosen]
    if there := [name for name in wanted if name in names]:
        return names.index(there[0])
    raise BenchError(
        f"{path} has no column {' or '.join(wanted[:2])}: its first line names {', '.join(names)[:200] or 'none'}",
        f"name the column: {option} NAME",
    )


def _read_coco(files: Sequence[Path], instances: Sequence[Path], images: Path) -> Source:
    """The captions of COCO's files, with boxes of others.

    A split is read off a file's name (captions_val2014.json). Pictures are looked for below `images`, and there in the
    folder of the name's end (val2014).
    """
    source = Source()
    by_id = source.pictures
    for file in files:
        content = _coco_content(file)
        parts = re.findall(r"[a-z]+|\d+", file.name.lower())
        split = next((SPLIT_NAMES[part] for part in parts if part in SPLIT_NAMES), None)
        folder = file.name.partition(".")[0].rpartition("_")[2]
        for number, entry in enumerate(content["images"]):
            name = entry.get("file_name") if isinstance(entry, dict) else None
            if not isinstance(name, str) or not is_image_id(entry.get("id")):
                source.complain('entries without "id" or "file_name"', f"{file.name}: entry {number}")
                continue
            inside = f"{folder}/{name}"
            place = inside if not (images / name).is_file() and (images / inside).is_file() else name
            if entry["id"] in by_id:
                source.complain("pictures with an id that another has", f"{file.name}: {place}")
                continue
            by_id[entry["id"]] = Picture(place, image_id=entry["id"], split=split, size=told_size(entry))
        for entry in content["annotations"]:
            owner = by_id.get(_image_of(entry))
            caption = entry.get("caption") if isinstance(entry, dict) else None
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


def _coco_content(file: Path) -> dict[str, Any]:
    content = read_json(file)
    if isinstance(content, dict) and all(isinstance(content.get(key), list) for key in ("images", "annotations")):
        return content
    raise BenchError(
        f'{file} is not in COCO\'s format: it has no lists "images" and "annotations"',
        "give captions_*.json, and instances_*.json with --instances; Karpathy's own JSON needs no conversion",
    )


def _image_of(entry: Any) -> int | None:
    image_id = entry.get("image_id") if isinstance(entry, dict) else None
    return image_id if is_image_id(image_id) else None


def _metadata_files(folder: Path) -> list[Path]:
    """The folder's own `metadata.jsonl`, or those of its folders."""
    own = folder / _METADATA
    return [own] if own.is_file() else sorted(folder.glob(f"*/{_METADATA}"))


def _read_imagefolder(folder: Path, caption_column: str | None) -> Source:
    """The pictures that the folder's `metadata.jsonl` name, as data sets of the Hugging Face Hub have it.

    A split is the line's `split`, or that of its folder. A caption is a text, or a list of them. `objects.bbox` is x,
    y, width, height in pixels.
    """
    source = Source()
    for file in _metadata_files(folder):
        below = file.parent.relative_to(folder).as_posix()
        for number, line in enumerate(read_text(file).split("\n"), 1):
            if not line.strip():
                continue
            entry = _line(f"{file}, line {number}", line, caption_column)
            name = entry["file_name"] if below == "." else f"{below}/{entry['file_name']}"
            picture = source.pictures.setdefault(name, Picture(name, size=told_size(entry)))
            picture.captions += entry["captions"]
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
    return source


def _line(where: str, line: str, caption_column: str | None) -> dict[str, Any]:
    """A line's object, with its captions as a list of texts under "captions"."""
    try:
        entry = load_json(line)
    except ValueError as error:
        raise BenchError(f"{where} is not valid JSON: {str(error)[:100]}") from error
    if not isinstance(entry, dict) or not isinstance(entry.get("file_name"), str):
        example = 'a line is {"file_name": "a.jpg", "text": "a dog"}, as imagefolder has it'
        raise BenchError(f'{where} has no text "file_name"', example)
    key = caption_column or next((key for key in _CAPTION_KEYS if key in entry), None)
    if key is None or key not in entry:
        raise BenchError(
            f"{where} has no caption: its keys are {', '.join(entry)[:200]}",
            "name the key of the captions: --caption-column KEY",
        )
    given = entry[key] if isinstance(entry[key], list) else [entry[key]]
    raw = [each.get("raw") if isinstance(each, dict) else each for each in given]
    return entry | {"captions": [each if isinstance(each, str) else "" for each in raw]}


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
        raise BenchError(f"no picture of {total} can be used: {'; '.join(problems)}", "name their folder: --images DIR")
    if not pictures:
        raise BenchError("the source names no picture", "see bench data convert --help")
    if problems and not leave_out:
        raise BenchError("; ".join(problems), "repair the source, or leave out what is named here: --skip-bad-images")
    rule = split_pictures(pictures, rule)
    keyed = all(picture.image_id is not None for picture in pictures)
    entries = [_entry(picture, number, keyed) for number, picture in enumerate(pictures)]
    twice = [picture.file for picture in pictures if len(set(picture.captions)) < len(picture.captions)]
    notes = [f"pictures with the same caption twice, which is kept: {_listed(twice)}"] if twice else []
    if empty := [split for split in _SPLITS if not any(picture.split == split for picture in pictures)]:
        notes.append(f"no picture is in {', '.join(empty)}, and runs need each: --split-by {_HASH} splits all anew")
    return {"dataset": name, "split_by": rule, "left_out": problems, "images": entries}, notes


def split_pictures(pictures: Sequence[Picture], rule: str | None) -> str:
    """Give every picture a split; returns the rule.

    It is "source" for those of the source, "hash:TRAIN/VAL/TEST" for these per cent by a hash of the file name: a
    picture stays in its split whatever is added or left out. None: the source's if it has any, else hash:80/10/10.
    BenchError where it cannot be understood, the source's splits are incomplete, or a split stays empty.
    """
    without = [picture.file for picture in pictures if picture.split is None]
    rule = rule or (_HASH if len(without) == len(pictures) else _SOURCE)
    if rule == _SOURCE:
        if without:
            raise BenchError(
                f"--split-by {_SOURCE}: {len(without)} of {len(pictures)} pictures have no split there ({without[0]})",
                f"split all of them by their names: --split-by {_HASH}",
            )
        return rule
    found = re.fullmatch(r"hash:(\d{1,3})/(\d{1,3})/(\d{1,3})", rule, re.ASCII)
    train, val, test = map(int, found.groups()) if found else (0, 0, 0)
    if not train or train + val + test != 100:
        raise BenchError(
            f"--split-by {shortened(rule)!r} is no rule for splits",
            f"write --split-by {_SOURCE}, or per cent of train, val and test: --split-by {_HASH}",
        )
    for picture in pictures:
        place = int.from_bytes(hashlib.sha256(picture.file.encode("utf-8", "surrogatepass")).digest()[:8]) / 2**64 * 100
        picture.split = "train" if place < train else "val" if place < train + val else "test"
    shares = zip(_SPLITS, (train, val, test), strict=True)
    if empty := [split for split, share in shares if share and not any(each.split == split for each in pictures)]:
        raise BenchError(
            f"--split-by {rule} leaves no picture of {len(pictures)} for {', '.join(empty)}",
            "give it a larger share, as in --split-by hash:60/20/20",
        )
    return rule


def _listed(about: Sequence[str]) -> str:
    shown = ", ".join(shortened(each) for each in about[:_LISTED])
    return f"{len(about)} ({shown}{', ...' if len(about) > _LISTED else ''})"


def _distinct(source: Source, images: Path) -> list[Picture]:
    """The pictures whose files are there, each once."""
    there: list[Picture] = []
    paths = PicturePaths(absolute(images))
    for picture in [each for each in source.pictures.values() if each.usable]:
        try:
            picture.file = plain_path(picture.file)
            paths.check_inside(picture.file)
            if (images / picture.file).is_file():
                there.append(picture)
            else:
                source.complain("missing pictures", picture.file)
        except RefusedPath as refusal:
            source.complain("pictures whose path is refused", str(refusal))
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
    if picture.boxes is not None:
        entry["boxes"] = picture.boxes
    if picture.size is not None:
        entry["width"], entry["height"] = picture.size
    return entry
