"""Check the pictures of a source, split them, and give them in Karpathy's format."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.data.annotations.image_paths import PicturePaths, RefusedPath, plain_path
from harness.data.convert.coco import read_coco
from harness.data.convert.imagefolder import METADATA, metadata_files, read_imagefolder
from harness.data.convert.source import Picture, Source
from harness.data.convert.splits import DEFAULT, SPLITS, split_pictures
from harness.data.convert.tables import read_table
from harness.data.sanitise import sanitise_caption
from harness.utils.errors import BenchError
from harness.utils.files import absolute, shortened

_TABLES = (".csv", ".tsv")


_LISTED = 8


@dataclass(frozen=True, slots=True)
class Converted:
    """Content in Karpathy's format, the number of images by split, the rule of the splits, and what was noticed.

    `left_out` and `notes` are sentences: what the content is without, and what is strange and in it all the same.
    """

    content: dict[str, Any]
    splits: dict[str, int]
    rule: str
    left_out: tuple[str, ...]
    notes: tuple[str, ...]


def read_source(
    given: Sequence[Path],
    *,
    instances: Sequence[Path] = (),
    images: Path | None = None,
    file_column: str | None = None,
    caption_column: str | None = None,
) -> tuple[Source, Path]:
    """The pictures of COCO's JSON, of a CSV or of an imagefolder, by what `given` is, and their folder.

    Raises:
        BenchError: it is none of these, or cannot be read.
    """
    first = given[0]
    coco = all(path.name.endswith((".json", ".json.gz")) for path in given)
    if instances and not coco:
        raise BenchError("--instances adds boxes to COCO's captions, and these are no captions_*.json", "leave it out")
    if coco:
        folder = images or first.absolute().parent
        return read_coco(given, instances, folder), folder
    if len(given) > 1:
        raise BenchError(f"SOURCE: {len(given)} are given, and only COCO's captions come in several files", "give one")
    if first.is_dir() and metadata_files(first):
        return read_imagefolder(first, caption_column), images or first
    if first.is_file() and first.name == METADATA:
        return read_imagefolder(first.parent, caption_column), images or first.absolute().parent
    tables = sorted(path for end in _TABLES for path in first.glob(f"*{end}")) if first.is_dir() else [first]
    if len(tables) != 1 or tables[0].suffix.lower() not in _TABLES:
        held = f"holds {', '.join(path.name for path in tables)}" if len(tables) > 1 else "is none of the known formats"
        raise BenchError(
            f"SOURCE {first} {held}",
            f"give COCO's captions_*.json, a CSV or a folder with one, or a folder with {METADATA}",
        )
    return read_table(tables[0], file_column, caption_column), images or tables[0].absolute().parent


def convert(source: Source, images: Path, *, name: str, rule: str | None, leave_out: bool) -> Converted:
    """Karpathy's JSON of a source.

    Pictures that are missing, have no caption, or are given twice (by name or by content, which would put one into two
    splits) and empty captions are problems, as are those that the reader of the source found.

    Args:
        images: the folder that the pictures' names are relative to.
        name: of the data set.
        rule: as `split_pictures`.
        leave_out: leave out what has a problem, instead of an error.

    Raises:
        BenchError: there are problems, no picture is left, or as `split_pictures`.
    """
    total = len(source.pictures)
    pictures = _captioned(source, _distinct(source, images))
    problems = tuple(f"{what}: {_listed(about)}" for what, about in source.problems.items())
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
    if empty := [split for split in SPLITS if not any(picture.split == split for picture in pictures)]:
        notes.append(f"no picture is in {', '.join(empty)}, and runs need each: --split-by {DEFAULT} splits all anew")
    return Converted(
        {"dataset": name, "split_by": rule, "left_out": list(problems), "images": entries},
        dict(Counter(str(picture.split) for picture in pictures)),
        rule,
        problems,
        tuple(notes),
    )


def _listed(about: Sequence[str]) -> str:
    shown = ", ".join(shortened(each) for each in about[:_LISTED])
    return f"{len(about)} ({shown}{', ...' if len(about) > _LISTED else ''})"


def _distinct(source: Source, images: Path) -> list[Picture]:
    """The pictures whose files are there, each once."""
    there: list[Picture] = []
    paths = PicturePaths(absolute(images))
    for picture in [each for each in source.pictures if each.usable]:
        try:
            picture.file = plain_path(picture.file)
            paths.check_inside(picture.file)
        except RefusedPath as refusal:
            source.complain("pictures whose path is refused", str(refusal))
            continue
        if (images / picture.file).is_file():
            there.append(picture)
        else:
            source.complain("missing pictures", picture.file)
    digests, first, found = _digests(there, images), dict[str, Picture](), []
    for picture in there:
        owner = first.setdefault(digests.get(picture.file, picture.file), picture)
        if owner is picture:
            found.append(picture)
        else:
            source.complain("pictures that are another one", f"{picture.file} is {owner.file}")
    return found


def _digests(pictures: Sequence[Picture], images: Path) -> dict[str, str]:
    """A digest of the content of each picture that is as large as another."""
    sizes = {picture.file: (images / picture.file).stat().st_size for picture in pictures}
    counts, found = Counter(sizes.values()), {}
    for file, size in sizes.items():
        if counts[size] > 1:
            with (images / file).open("rb") as content:
                found[file] = hashlib.file_digest(content, "sha256").hexdigest()
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
        entry["boxes"] = [list(box) for box in picture.boxes]
    if picture.size is not None:
        entry["width"], entry["height"] = picture.size
    return entry
