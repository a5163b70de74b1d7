"""Reference captions by image id, from any format of annotations; pictures are not needed.

Captions are sanitised for the line-based Java programs, without changing any score otherwise: the tokenizer reads one
caption per line, so a character that Java takes for a line end would silently assign every later caption to the wrong
image, and METEOR separates the fields of a line by `|||`.
"""

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, SupportsIndex

from harness.data.formats.annotations import SPLIT_NAMES, AnnotatedImage, Annotations, ReadOptions, described_problems
from harness.data.formats.captions_by_image import captions_of
from harness.data.formats.ids import image_ids, named, whole_number
from harness.data.formats.karpathy_json import images_of
from harness.data.formats.look import single_words
from harness.data.formats.registry import read_annotations
from harness.utils.errors import BenchError
from harness.utils.files import shortened
from harness.utils.json_io import read_json

_SPLIT: Final = "test"
_LINE_ENDS: Final = "\n\r\v\f\u0085\u2028\u2029"
_CONTROLS: Final = "".join(map(chr, range(32))).replace("\t", "")
_TO_SPACE: Final = dict.fromkeys(map(ord, _LINE_ENDS + _CONTROLS), " ")
METEOR_SEPARATOR: Final = "|||"


@dataclass(frozen=True, slots=True)
class References:
    """Reference captions by image id, in the order of the file's images; domains and file names if it has them.

    `other_ids` are ids and `other_files` files of the file's images of other splits. `labels` are ids as the file has
    them, where these are texts: its images are then numbered in its order. `left_out` are images that the file has no
    captions of; `notes` say so. `id_field` is the key of the ids, where the format leaves it open.
    """

    name: str
    captions: dict[int, tuple[str, ...]]
    domains: dict[int, str] = field(default_factory=dict)
    files: dict[int, str] = field(default_factory=dict)
    other_ids: frozenset[int] = frozenset()
    other_files: frozenset[str] = frozenset()
    labels: dict[int, str] = field(default_factory=dict)
    left_out: frozenset[int] = frozenset()
    notes: tuple[str, ...] = ()
    id_field: str = ""


def read_references(
    path: Path, *, split: str | None = None, caption_field: str | None = None, format_name: str | None = None
) -> References:
    """Read the references of a file in any known format.

    Args:
        split: the split to read of a file that names some; the test split without it.
        caption_field: the field of the captions, where several could be.
        format_name: the format, where the content does not tell it.

    Raises:
        BenchError: the file cannot be read, is in no known format, has a fault, or `split` or `caption_field` is given
            for a file without such.
    """
    options = ReadOptions(
        caption_field=caption_field,
        caption_option="--reference-field",
        image_option="",
        format_option="--reference-format",
    )
    return references_from(read_annotations(path, options, format_name), split)


def first_images(references: References, limit: int) -> References:
    """The first images of the references, in their order; BenchError if there are no more than these."""
    images = list(references.captions)
    if limit < 1:
        raise BenchError(f"--limit {limit}: nothing would be scored", "name a number from 1 on, or leave it out")
    if limit >= len(images):
        raise BenchError(
            f"--limit {limit}: {references.name} has {len(images)} images, which are all scored anyway",
            "leave --limit out, or name a lower number",
        )
    captions = {image_id: references.captions[image_id] for image_id in images[:limit]}
    return replace(references, captions=captions, other_ids=references.other_ids.union(images[limit:]))


def references_from(annotations: Annotations, split: str | None = None) -> References:
    """The references of one split; BenchError if there is a fault, no such split, or no caption at all."""
    path = annotations.path
    if annotations.problems:
        raise BenchError(f"{path}: {described_problems(annotations)}", "repair the file, or take these out of it")
    if not annotations.images:
        raise BenchError(f"{path} has no images")
    images = _of_split(annotations, split)
    captioned = [image for image in images if image.captions]
    without = [str(image.name) for image in images if not image.captions]
    blank = [str(image.name) for image in captioned if not any(text.strip() for text in image.captions)]
    if blank or not captioned:
        raise BenchError(f"{path}: {named(blank or without, 'without a reference caption')}")
    notes = list(annotations.notes)
    if without:
        notes.append(f"left out: {named(without, 'without a reference caption')}")
    are_numbers = _are_numbers(annotations)
    ids = {image.name: _id(image, index, are_numbers) for index, image in enumerate(images)}
    captions = {}
    domains = {}
    files = {}
    labels = {}
    for image in captioned:
        image_id = ids[image.name]
        captions[image_id] = tuple(image.captions)
        if image.domain is not None:
            domains[image_id] = image.domain
        if str(image.name) != str(image_id):
            files[image_id] = str(image.name)
        if image.file:
            files[image_id] = image.file
        if not are_numbers:
            labels[image_id] = str(image.name)
    of_other_splits = [image for image in annotations.images.values() if image.name not in ids]
    other_numbers = (whole_number(image.name) for image in of_other_splits)
    notes += single_words([text for texts in captions.values() for text in texts])
    return References(
        path.name.partition(".")[0],
        captions,
        domains,
        files,
        other_ids=frozenset(number for number in other_numbers if number is not None),
        other_files=frozenset(image.file for image in of_other_splits if image.file),
        labels=labels,
        left_out=frozenset(ids.values()).difference(captions),
        notes=tuple(notes),
        id_field=annotations.id_field,
    )


def _of_split(annotations: Annotations, split: str | None) -> list[AnnotatedImage]:
    images = list(annotations.images.values())
    if all(image.split is None for image in images):
        if split is not None:
            raise BenchError(
                f"--split {shortened(split)!r}, but {annotations.path} names no splits",
                "leave --split out: all of its images are read",
            )
        return images
    split_name = _SPLIT if split is None else SPLIT_NAMES.get(split.lower(), split)
    split_images = [image for image in images if image.split == split_name]
    if split_images:
        return split_images
    splits = ", ".join(sorted({str(image.split) for image in images}))
    raise BenchError(
        f"{annotations.path} has no split {shortened(split_name)!r}", f"name one of its splits with --split: {splits}"
    )


def _are_numbers(annotations: Annotations) -> bool:
    """Whether every image has a number of its own as its name."""
    numbers = [whole_number(name) for name in annotations.images]
    return None not in numbers and len(set(numbers)) == len(numbers)


def _id(image: AnnotatedImage, index: int, are_numbers: bool) -> int:
    """The number that names an image, or its index if not all names are numbers."""
    number = whole_number(image.name)
    return number if are_numbers and number is not None else index


def references_by_image(captions: Mapping[Any, Any], source: Path) -> References:
    """References in memory, a text or several by id or file name; BenchError, which calls them `source`, elsewhere."""
    texts_by_image: dict[str | int, list[str]] = {}
    for key, value in captions.items():
        name = image_name(key, source)
        texts = captions_of(value)
        if not texts or name in texts_by_image:
            raise BenchError(
                f"{source}: image {shortened(str(name))} has no list of texts: {shortened(repr(value), 60)}",
                'give texts by image: {1: ["a dog", "one dog"]}',
            )
        texts_by_image[name] = texts
    if not texts_by_image:
        raise BenchError(f"{source} has no images", 'give texts by image: {1: ["a dog", "one dog"]}')
    images: dict[str | int, AnnotatedImage] = {}
    for name, texts in texts_by_image.items():
        images[name] = AnnotatedImage(name, captions=texts)
    return references_from(Annotations(source, images))


def image_name(key: object, source: Path) -> str | int:
    """The key of an image in memory as a text or a whole number, also of numpy; BenchError for anything else."""
    if isinstance(key, str):
        return key
    if isinstance(key, SupportsIndex) and not isinstance(key, bool):
        return operator.index(key)
    raise BenchError(
        f"{source}: {shortened(repr(key))} names no image",
        "name images by whole numbers or by their files",
    )


def read_image_ids(path: Path) -> list[int]:
    """The ids of a file's images, with or without captions, in its order; BenchError as `read_references`."""
    if not (images := images_of(read_json(path))):
        raise BenchError(f'{path} has no list of objects named "images"')
    return image_ids(path, images, next((key for key in ("id", "cocoid") if key in images[0]), "imgid"))


def read_image_files(path: Path) -> dict[int, str]:
    """The file names of a file's images by their ids, of those that have one; BenchError as `read_image_ids`."""
    ids = read_image_ids(path)
    images = images_of(read_json(path)) or []
    names = [image.get("file_name", image.get("filename")) for image in images]
    return {image_id: name for image_id, name in zip(ids, names, strict=True) if isinstance(name, str)}


def sanitise_caption(caption: str) -> str:
    r"""`caption` on one line of valid Unicode.

    Line and paragraph ends (\n \r \v \f U+0085 U+2028 U+2029) and the other control characters below U+0020 but tab
    (NUL among them) become a space, as pycocoevalcap does for \n and as the tokenizer does for the harmless ones.
    Unpaired surrogates, which JSON can carry and UTF-8 cannot, become U+FFFD; the tokenizer drops that. The controls
    U+0080 to U+009F stay, U+0085 excepted: the tokenizer reads them as Windows-1252 quotes and dashes.
    """
    if caption.isascii() and caption.isprintable():
        return caption
    return caption.translate(_TO_SPACE).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def sanitise_meteor_field(tokens: str) -> str:
    """Tokenised caption without METEOR's field separator, by the two replacements of pycocoevalcap on candidates.

    It leaves references alone, where a separator would silently count as one more reference.
    """
    return tokens.replace(METEOR_SEPARATOR, "").replace("  ", " ")
