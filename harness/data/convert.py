"""Convert annotations of any format to Karpathy's: find pictures, check captions, and make splits."""

import hashlib
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.data.formats.annotations import (
    SPLIT_NAMES,
    AnnotatedImage,
    Annotations,
    ReadOptions,
    listed,
    split_of_name,
)
from harness.data.formats.coco import add_instances, read_coco
from harness.data.formats.content import Content, read_content
from harness.data.formats.ids import whole_number
from harness.data.formats.image_folders import PICTURES, metadata_files
from harness.data.formats.match import file_names
from harness.data.formats.references import sanitise_caption
from harness.data.formats.registry import find_format, read_as, single_file
from harness.data.karpathy import PicturePaths
from harness.utils.errors import BenchError
from harness.utils.files import RefusedPath, absolute, plain_path, shortened
from harness.utils.hashing import sha256_of

_SOURCE, _HASH = "source", "hash:80/10/10"
_SPLITS = ("train", "val", "test")
_RULES = (_HASH, "hash:60/20/20", "hash:50/25/25", "hash:40/30/30", "hash:30/35/35")
_TESTING_RULES = ("hash:50/10/40", "hash:40/20/40", "hash:40/30/30", "hash:30/30/40")
LEAST_VALIDATED = 2
"""Minimum number of images of a split for validation: CIDEr-D of a single image is always 0."""


def read_source(
    paths: Sequence[Path],
    *,
    instances: Sequence[Path],
    images: Path | None,
    options: ReadOptions,
    format_name: str | None = None,
) -> tuple[Annotations, str, Path]:
    """The annotations of a source in any format, the format's title, and the folder of the pictures.

    Several files are COCO's, which has one for each split, and says it in the file's name.

    Raises:
        BenchError: a file is in no known format or in Karpathy's already, or several are not COCO's.
    """
    contents = [read_content(single_file(path)) for path in paths]
    first = contents[0]
    first_format = find_format(first, format_name)
    is_coco = first_format.read is read_coco
    folder = images or _picture_folder(first)
    if first_format.name == "karpathy":
        command = f"bench data verify {shlex.quote(str(first.path))} --images {shlex.quote(str(folder))}"
        raise BenchError(
            f"{first.path} is in Karpathy's format already", f"it needs no conversion; check it: {command}"
        )
    if instances and not is_coco:
        raise BenchError(
            f"--instances adds boxes to COCO's captions, and {first.path} is {first_format.title}", "leave it out"
        )
    if len(contents) > 1 and not is_coco:
        raise BenchError(f"SOURCE: {len(paths)} are given, and only COCO's captions come in several files", "give one")
    annotations = read_as(first_format, first, options)
    if is_coco:
        _complete_coco(annotations, annotations, folder)
    for content in contents[1:]:
        other = read_as(find_format(content, format_name), content, options)
        _complete_coco(annotations, other, folder)
        for name, image in other.images.items():
            if name in annotations.images:
                annotations.add_problem("pictures with an id that another has", f"{content.path.name}: {image.picture}")
            else:
                annotations.images[name] = image
        annotations.notes += other.notes
        for problem, about in other.problems.items():
            annotations.problems.setdefault(problem, []).extend(about)
    for path in instances:
        add_instances(annotations, read_content(path))
    return annotations, first_format.title, folder


def describe(annotations: Annotations, title: str) -> str:
    """A summary of a source, such as "Kaggle captions.txt: 8,091 images, 40,455 captions, no splits"."""
    splits = Counter(image.split for image in annotations.images.values() if image.split is not None)
    described_splits = ", ".join(f"{split} {count:,}" for split, count in splits.items()) or "no splits"
    return f"{title}: {len(annotations.images):,} images, {annotations.caption_count:,} captions, {described_splits}"


def source_files(sources: Iterable[Path]) -> list[Path]:
    """The files that are read for sources: of a folder its table or metadata, otherwise the source itself."""
    files: list[Path] = []
    for path in sources:
        files += metadata_files(path) if path.is_dir() and metadata_files(path) else [single_file(path)]
    return [path for path in files if path.is_file()]


def _complete_coco(annotations: Annotations, other: Annotations, images: Path) -> None:
    """Set the images' split from the file's name, and the pictures' folder from its last part (val2014)."""
    name = other.path.name.partition(".")[0]
    split = split_of_name(name)
    folder = name.rpartition("_")[2]
    for image in other.images.values():
        image.split = split
        if not image.file:
            annotations.add_problem("images without a file name", f"{other.path.name}: {image.name}")
            image.usable = False
        elif not (images / image.file).is_file() and (images / folder / image.file).is_file():
            image.file = f"{folder}/{image.file}"


def _picture_folder(content: Content) -> Path:
    """The folder of the pictures: a folder Images or images in the source's folder, or that folder itself."""
    folder = content.path if content.is_folder else content.path.absolute().parent
    candidates = [path for path in folder.iterdir() if path.is_dir() and path.name.lower() == "images"]
    return candidates[0] if len(candidates) == 1 else folder


def convert(
    source: Annotations, images: Path, *, name: str, rule: str | None, leave_out: bool
) -> tuple[dict[str, Any], list[str]]:
    """Karpathy's JSON of a source, and notes on unusual content.

    Pictures that are missing, have no caption, or are in two splits (by content, too) and empty captions are problems,
    as are those that the reader of the source found. Copies of a picture get its split. With `leave_out` what has
    one is left out, and named under "left_out"; else BenchError, as for no picture, and as `split_pictures`.
    """
    total = len(source.images)
    _check_splits(source)
    existing = _existing(source, images)
    copies = _copies(source, existing, images, keeps_splits=rule in (None, _SOURCE))
    pictures = _captioned(source, [picture for picture in existing if picture.usable])
    problems = [f"{what}: {listed(about)}" for what, about in source.problems.items()]
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
    rule = split_pictures(pictures, rule, copies)
    key, ids = _ids(pictures)
    entries = [_entry(picture, key, image_id) for picture, image_id in zip(pictures, ids, strict=True)]
    twice = [picture.file for picture in pictures if len(set(picture.captions)) < len(picture.captions)]
    notes = list(source.notes)
    if twice:
        notes.append(f"pictures with the same caption twice, which is kept: {listed(twice)}")
    return {"dataset": name, "split_by": rule, "left_out": problems, "images": entries}, notes


def split_pictures(
    pictures: Sequence[AnnotatedImage], rule: str | None, copies: Mapping[str, str] | None = None
) -> str:
    """Set the split of every picture; return the rule.

    It is "source" for those of the source, "hash:TRAIN/VAL/TEST" for these per cent by a hash of the file name: a
    picture stays in its split whatever is added or left out. None: the source's if it has any, else hash:80/10/10.
    `copies` have the name of the picture that each is a copy of, whose split they get.
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
        picture.split = _split_by_name((copies or {}).get(picture.file, picture.file), shares)
    filled = {picture.split for picture in pictures}
    if empty := [split for split, share in zip(_SPLITS, shares, strict=True) if share and split not in filled]:
        other = working_rule(files)
        raise BenchError(
            f"--split-by {rule} leaves no picture of {len(pictures)} for {', '.join(empty)}",
            f"give it a larger share: --split-by {other}" if other else "give more pictures",
        )
    return rule


def _shares(rule: str) -> tuple[int, int, int] | None:
    """The percentages of train, val and test of a rule; None where it is not a rule."""
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
    """A rule that gives these pictures usable splits, with more than `tested` test images; None if there is none."""
    files = list(files)
    for rule in _TESTING_RULES if tested else _RULES:
        shares = _shares(rule)
        counts = Counter(_split_by_name(file, shares) for file in files) if shares else Counter[str]()
        if counts["train"] and counts["val"] >= LEAST_VALIDATED and counts["test"] > tested:
            return rule
    return None


def _check_splits(source: Annotations) -> None:
    """Record pictures with an unknown split as problems."""
    for image in source.images.values():
        if image.usable and image.split is not None and image.split not in SPLIT_NAMES.values():
            problem = f"pictures with a split that is none of {', '.join(SPLIT_NAMES)}"
            source.add_problem(problem, f"{image.picture} ({shortened(repr(image.split), 40)})")
            image.usable = False


def _existing(source: Annotations, images: Path) -> list[AnnotatedImage]:
    """The pictures whose files exist."""
    existing: list[AnnotatedImage] = []
    completed = 0
    paths = PicturePaths(absolute(images))
    by_stem = _files_by_stem(images)
    for picture in [image for image in source.images.values() if image.usable]:
        try:
            picture.file = plain_path(picture.picture)
            paths.check_inside(picture.file)
            if (
                not (images / picture.file).is_file()
                and len(same_stem := by_stem.get(Path(picture.file).name, [])) == 1
            ):
                picture.file = same_stem[0]
                completed += 1
            if (images / picture.file).is_file():
                existing.append(picture)
            else:
                source.add_problem("missing pictures", picture.file)
        except RefusedPath as refusal:
            source.add_problem("pictures whose path is refused", str(refusal))
    if completed:
        source.notes.append(f"{completed} pictures are named without folder or ending, and were found by it")
    return existing


def _copies(
    source: Annotations, pictures: Sequence[AnnotatedImage], images: Path, *, keeps_splits: bool
) -> dict[str, str]:
    """By the file of each copy, the first picture with the same content.

    A file of two entries is a problem, and so is a copy in another split where the source's splits are kept: a model
    would be tested on what it was trained on.
    """
    sizes = {picture.file: (images / picture.file).stat().st_size for picture in pictures}
    counts = Counter(sizes.values())
    first = dict[str, AnnotatedImage]()
    copies = dict[str, str]()
    files: set[str] = set()
    for picture in pictures:
        alone = counts[sizes[picture.file]] == 1
        owner = first.setdefault(picture.file if alone else sha256_of(images / picture.file), picture)
        if picture.file in files or (owner is not picture and keeps_splits and owner.split != picture.split):
            source.add_problem("duplicate pictures", f"{picture.file} is {owner.file}")
            picture.usable = False
        elif owner is not picture:
            copies[picture.file] = owner.file
        files.add(picture.file)
    if copies:
        pairs = [f"{copy} of {original}" for copy, original in copies.items()]
        source.notes.append(f"duplicate pictures, kept in one split: {listed(pairs)}")
    return copies


def _files_by_stem(images: Path) -> dict[str, list[str]]:
    """The pictures of a folder, by their names without extension."""
    files: dict[str, list[str]] = {}
    for path in images.iterdir() if images.is_dir() else ():
        if path.suffix.lower() in PICTURES:
            files.setdefault(path.stem, []).append(path.name)
    return files


def _captioned(source: Annotations, pictures: Sequence[AnnotatedImage]) -> list[AnnotatedImage]:
    """The pictures that have captions, without empty ones."""
    for picture in pictures:
        texts = [" ".join(sanitise_caption(caption).split()) for caption in picture.captions]
        picture.captions = [text for text in texts if text]
        if not picture.captions:
            source.add_problem("pictures without a caption", picture.file)
        elif len(picture.captions) < len(texts):
            source.add_problem("pictures with an empty caption", picture.file)
    return [picture for picture in pictures if picture.captions]


def _ids(pictures: Sequence[AnnotatedImage]) -> tuple[str, list[int]]:
    """The key and the ids of pictures: numbers in the source, or in the files' names, or the pictures' positions.

    A position that is the number of another picture's file would give its captions to that one.
    """
    stems = [file_names(picture.file)[-1] for picture in pictures]
    for key, names in (("cocoid", [picture.name for picture in pictures]), ("imgid", stems)):
        numbers = [number for name in names if (number := whole_number(name)) is not None]
        if len(set(numbers)) == len(pictures):
            return key, numbers
    return "imgid", list(range(len(pictures)))


def _entry(picture: AnnotatedImage, key: str, image_id: int) -> dict[str, Any]:
    folder, _, name = picture.file.rpartition("/")
    entry: dict[str, Any] = {key: image_id}
    entry |= {"filename": name} | ({"filepath": folder} if folder else {})
    entry |= {"split": picture.split, "sentences": [{"raw": caption} for caption in picture.captions]}
    if picture.domain is not None:
        entry["domain"] = picture.domain
    if picture.boxes is not None:
        entry["boxes"] = picture.boxes
    if picture.size is not None:
        entry["width"], entry["height"] = picture.size
    return entry
