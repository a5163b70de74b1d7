"""Read reference captions from COCO's annotations, and from Karpathy's and nocaps's JSON, plain or gzipped.

Captions are sanitised for the line-based Java programs, without changing any score otherwise: the tokenizer reads one
caption per line, so a character that Java takes for a line end would silently assign every later caption to the wrong
image, and METEOR separates the fields of a line by `|||`.
"""

import operator
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, Final, SupportsIndex, TypeGuard

from harness.data.formats.table import caption_list, read_table, refuse_different_texts
from harness.utils.errors import BenchError
from harness.utils.files import shortened
from harness.utils.json_io import read_json, read_json_or_lines

_SHOWN = 10
_IMAGE_KEYS = ("image_id", "cocoid", "image", "file", "file_name", "filename", "image_path", "img_id", "imgid", "id")
_CAPTION_KEYS = ("captions", "caption", "reference_strs", "references", "raw", "text", "report")
_SPLIT = "test"
SPLIT_NAMES: Final = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
    "test": "test",
    "restval": "restval",
}
"""What data sets call their splits, and the name here."""
WHOLE_NUMBER = "whole number of 64 bits"
_MAX_ID = 2**63
_LINE_ENDS: Final = "\n\r\v\f\u0085\u2028\u2029"
_CONTROLS: Final = "".join(map(chr, range(32))).replace("\t", "")
_TO_SPACE: Final = dict.fromkeys(map(ord, _LINE_ENDS + _CONTROLS), " ")
METEOR_SEPARATOR: Final = "|||"


@dataclass(frozen=True, slots=True)
class References:
    """Reference captions by image id, in the order of the file's images; domains and file names if it has them.

    `others` are ids of the file's images of other splits. `labels` are ids as the file has them, where these are texts:
    its images are then numbered in its order. `left_out` are images that the file has no captions of; `notes` say so.
    """

    name: str
    captions: dict[int, tuple[str, ...]]
    domains: dict[int, str] = field(default_factory=dict)
    files: dict[int, str] = field(default_factory=dict)
    others: frozenset[int] = frozenset()
    labels: dict[int, str] = field(default_factory=dict)
    left_out: frozenset[int] = frozenset()
    notes: tuple[str, ...] = ()


def read_references(path: Path, *, split: str | None = None, caption_field: str | None = None) -> References:
    """Read COCO's annotations (as nocaps's, with a domain per image) or Karpathy's JSON, of which `split` is read.

    Without `split` that is its test split. `caption_field` names the captions of a table or of a list of objects.
    BenchError where the file cannot be read, has another format, or images without captions, where several fields hold
    different captions, or where `split` or `caption_field` is given for a file without such.
    """
    if path.suffix.lower() in {".csv", ".tsv"}:
        return _of_table(path, split, caption_field)
    return references_of(read_json_or_lines(path), path, split=split, caption_field=caption_field)


def references_of(
    content: Any, path: Path, *, split: str | None = None, caption_field: str | None = None
) -> References:
    """As `read_references`, of the content of a file."""
    if (images := images_of(content)) is None:
        return _of_entries(content, path, split, caption_field)
    if caption_field is not None:
        raise BenchError(f"--reference-field {shortened(caption_field)}: {path} lists images", "leave it out")
    listed, labels, notes, left_out = images, dict[int, str](), list[str](), frozenset[int]()
    if "annotations" in content:
        if split is not None:
            raise BenchError(
                f"--split {shortened(split)!r} chooses from a Karpathy file, but {path} is in COCO's format, "
                "which names no splits",
                "leave --split out: all of its images are read",
            )
        key = "id"
        images, annotations, labels = numbered_images(images, content["annotations"])
        annotations, notes = without_rejected(annotations)
        listed, found = images, _coco(path, images, annotations)
        without = [image_id for image_id, texts in found.items() if not texts]
        if 0 < len(without) < len(found):
            shown = [labels.get(image_id, str(image_id)) for image_id in without]
            notes.append(f"left out: {named(shown, 'without a reference caption')}")
            found = {image_id: texts for image_id, texts in found.items() if texts}
            left_out = frozenset(without)
    elif any("sentences" in image for image in images):
        images = _of_split(path, images, _SPLIT if split is None else split)
        key = id_key(images)
        texts_of = [tuple(sentence["raw"] for sentence in sentences_of(image)) for image in images]
        found = dict(zip(image_ids(path, images, key), texts_of, strict=True))
    else:
        raise BenchError(
            f"{path} lists images without captions",
            "references of a test split are not published: send predictions to its server (bench export submission)",
        )
    if not found:
        raise BenchError(f"{path} has no images")
    if bare := [str(image_id) for image_id, texts in found.items() if not texts]:
        raise BenchError(f"{path}: {named(bare, 'without a reference caption')}")
    domains = _texts(images, key, "domain")
    if strange := [str(image_id) for image_id, domain in domains.items() if not domain.isprintable()]:
        raise BenchError(f"{path}: {named(strange, 'whose domain is not a plain text')}")
    folders = _texts(images, key, "filepath")
    files = {i: str(PurePosixPath(folders.get(i, ""), name)) for i, name in _texts(images, key, "filename").items()}
    files = _texts(images, key, "file_name") | files
    others = frozenset(image[key] for image in listed if is_image_id(image.get(key))).difference(found)
    return References(path.name.partition(".")[0], found, domains, files, others, labels, left_out, tuple(notes))


def references_by_image(captions: Mapping[Any, Any], source: Path) -> References:
    """References in memory, a text or several by id or file name; BenchError, which calls them `source`, elsewhere."""
    texts_by_image: dict[str | int, list[str]] = {}
    for key, value in captions.items():
        name = image_name(key, source)
        texts = _reference_texts(list(value) if isinstance(value, tuple) else value)
        if not texts or name in texts_by_image:
            raise BenchError(
                f"{source}: image {shortened(str(name))} has no list of texts: {shortened(repr(value), 60)}",
                'give texts by image: {1: ["a dog", "one dog"]}',
            )
        texts_by_image[name] = texts
    if not texts_by_image:
        raise BenchError(f"{source} has no images", 'give texts by image: {1: ["a dog", "one dog"]}')
    return _of_named(source, texts_by_image)


def image_name(key: object, source: Path) -> str | int:
    """What names an image in memory: a text or a whole number, also one of numpy; BenchError for anything else."""
    if isinstance(key, str):
        return key
    if isinstance(key, SupportsIndex) and not isinstance(key, bool):
        return operator.index(key)
    raise BenchError(
        f"{source}: {shortened(repr(key))} names no image",
        "name images by whole numbers or by their files",
    )


def entries_by_split(content: Any) -> dict[str, list[dict[str, Any]]] | None:
    """The entries by split of `{"train": [{...}], "val": [{...}], "test": [{...}]}`; None of other content.

    R2Gen's annotation.json is so: `{"id": "CXR1", "report": TEXT, "image_path": ["CXR1/0.png", "CXR1/1.png"]}`.
    """
    if not isinstance(content, dict) or not content or not SPLIT_NAMES.keys() >= content.keys():
        return None
    lists = list(content.values())
    if not all(isinstance(entries, list) and all(isinstance(entry, dict) for entry in entries) for entries in lists):
        return None
    return content if any(lists) else None


def first_picture(value: Any) -> str | None:
    """The file that an entry names, or the first of its list; None where it names none."""
    if isinstance(value, list) and value:
        value = value[0]
    return value if isinstance(value, str) and value.strip() else None


def _of_splits(
    by_split: Mapping[str, Sequence[Mapping[str, Any]]], path: Path, split: str | None, caption_field: str | None
) -> References:
    """References of one split of R2Gen's form, and the first picture of each entry as its file."""
    wanted = _SPLIT if split is None else split
    if not by_split.get(wanted):
        splits = ", ".join(name for name, entries in by_split.items() if entries)
        raise BenchError(f"{path} has no split {shortened(wanted)!r}", f"name one of its splits with --split: {splits}")
    captions: dict[Any, list[str]] = {}
    pictures: dict[Any, str] = {}
    for number, entry in enumerate(by_split[wanted]):
        names = [entry[key] for key in _IMAGE_KEYS if key in entry and not isinstance(entry[key], list)]
        texts = _reference_texts(entry.get(_caption_field(entry, caption_field, path) or ""))
        if not names or not texts or not isinstance(names[0], str | int):
            raise BenchError(
                f"{path}: entry {number} of {wanted} has no id or no text",
                f'an entry is {{"id": "a", "{caption_field or "report"}": "no effusion", "image_path": ["a/0.png"]}}',
            )
        captions.setdefault(names[0], []).extend(texts)
        if picture := first_picture(entry.get("image_path")):
            pictures.setdefault(names[0], picture)
    references = _of_named(path, captions)
    ids = dict(zip(captions, references.captions, strict=True))
    files = {ids[name]: picture for name, picture in pictures.items()}
    return replace(references, files=references.files | files)


def _of_entries(content: Any, path: Path, split: str | None, caption_field: str | None) -> References:
    """References of an object by image or by split, or of a list of objects with an image and a caption or several."""
    if (by_split := entries_by_split(content)) is not None:
        return _of_splits(by_split, path, split, caption_field)
    if isinstance(content, dict) and isinstance(content.get("data"), list):  # TextCaps
        content = content["data"]
    entries: list[tuple[Any, Any]] = []
    if isinstance(content, dict):
        entries = list(content.items())
    elif isinstance(content, list) and all(isinstance(entry, dict) for entry in content):
        for entry in content:
            name = next((entry[key] for key in _IMAGE_KEYS if key in entry), None)
            entries.append((name, entry.get(_caption_field(entry, caption_field, path))))
    captions: dict[Any, list[str]] = {}
    for name, value in entries:
        texts = _reference_texts(value)
        if not texts or not isinstance(name, str | int) or isinstance(name, bool):
            captions.clear()
            break
        known = captions.setdefault(name, [])
        if not (isinstance(value, list) and texts == known):  # TextCaps repeats the list with each of its captions
            known += texts
    if not captions:
        raise BenchError(
            f"{path} holds no reference captions",
            "give COCO's annotations (captions_val2014.json), nocaps's or Karpathy's JSON (dataset_coco.json), "
            'a CSV with image,caption, or {"1": ["a dog", "one dog"]}',
        )
    if split is not None:
        raise BenchError(f"--split {shortened(split)!r}, but {path} names no splits", "leave --split out")
    return _of_named(path, captions)


def _of_table(path: Path, split: str | None, caption_field: str | None) -> References:
    """References of a table with an image and a caption a row, or a list of captions; pictures are not needed."""
    table = read_table(path)
    headings = table.headings
    image = next((headings.index(name) for name in _IMAGE_KEYS if name in headings), None)
    if image is None or _caption_field(dict.fromkeys(headings), caption_field, path) is None:
        raise BenchError(
            f"{path} has no columns of images and captions: its headings are {', '.join(headings)[:200] or 'none'}",
            "call them image and caption in the first line",
        )
    split_at = headings.index("split") if "split" in headings else None
    if split is not None and split_at is None:
        raise BenchError(f"--split {shortened(split)!r}, but {path} names no splits", "leave --split out")
    wanted = split if split is not None or split_at is None else _SPLIT
    captions: dict[Any, list[str]] = {}
    for row in table.rows:
        if len(row.cells) != len(headings):
            raise BenchError(
                f"{path}, line {row.line}: {len(row.cells)} cells under {len(headings)} headings",
                "quote cells that hold the delimiter",
            )
        if split_at is None or row.cells[split_at].strip() == wanted:
            cells = dict(zip(headings, row.cells, strict=True))
            cell = cells[_caption_field(cells, caption_field, path) or ""]
            texts = caption_list(cell) or [cell]
            captions.setdefault(row.cells[image].strip(), []).extend(texts)
    if not captions:
        splits = sorted({row.cells[split_at].strip() for row in table.rows}) if split_at is not None else []
        raise BenchError(
            f"{path} has no split {wanted!r}", f"name one of its splits with --split: {', '.join(splits) or 'none'}"
        )
    return _of_named(path, captions)


def _of_named(path: Path, captions: Mapping[Any, Sequence[str]]) -> References:
    """References by what names the images: whole numbers are ids, other names are numbered in the file's order."""
    name = path.name.partition(".")[0]
    if bare := [str(image) for image, texts in captions.items() if not any(text.strip() for text in texts)]:
        raise BenchError(f"{path}: {named(bare, 'without a reference caption')}")
    numbers = [whole_number(image) for image in captions]
    if None not in numbers and len(set(numbers)) == len(numbers):
        of_numbers = zip(numbers, captions.values(), strict=True)
        padded = {number: image for number, image in zip(numbers, captions, strict=True) if str(number) != str(image)}
        return References(
            name,
            {number: tuple(texts) for number, texts in of_numbers if number is not None},
            files={number: str(image) for number, image in padded.items() if number is not None},
        )
    labels = {number: str(image) for number, image in enumerate(captions)}
    found = {number: tuple(texts) for number, texts in enumerate(captions.values())}
    return References(name, found, files=labels, labels=labels)


def _caption_field(entry: Mapping[str, Any], chosen: str | None, path: Path) -> str | None:
    """The field of the captions; BenchError where several hold different texts, and none is chosen."""
    if chosen is not None and chosen not in entry:
        raise BenchError(
            f"--reference-field {shortened(chosen)}: {path} has no such field", f"choose one of: {', '.join(entry)}"
        )
    names = [name for name in _CAPTION_KEYS if name in entry] if chosen is None else [chosen]
    refuse_different_texts(entry, names, path, "--reference-field")
    return names[0] if names else None


def _reference_texts(value: Any) -> list[str]:
    """The captions that a value holds: a text, or a list of texts or of objects with one; none of anything else."""
    values = value if isinstance(value, list) else [value]
    texts = []
    for each in values:
        text = next((each[key] for key in ("caption", "raw") if key in each), None) if isinstance(each, dict) else each
        if not isinstance(text, str):
            return []
        texts.append(text)
    return texts


def whole_number(value: object) -> int | None:
    """An id that is a whole number, or a text of its digits, also with zeros before them; None of anything else."""
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,19}", value):
        value = int(value)
    return value if is_image_id(value) else None


def numbered_images(images: list[Any], annotations: Any) -> tuple[list[Any], Any, dict[int, str]]:
    """Images and annotations of COCO's form with whole numbers as ids, and the texts that these stand for."""
    if not all(isinstance(image, dict) for image in images):
        return images, annotations, {}
    ids = [image.get("id") for image in images]
    if not images or not all(isinstance(image_id, str) for image_id in ids) or not isinstance(annotations, list):
        return images, annotations, {}
    numbers = [whole_number(image_id) for image_id in ids]
    labels: dict[int, str] = {}
    if None in numbers or len(set(numbers)) < len(numbers):
        numbers = list(range(len(ids)))
        labels = dict(enumerate(map(str, ids)))
    number_of = dict(zip(ids, numbers, strict=True))
    if len(number_of) < len(ids):
        return images, annotations, {}  # an id twice, which is refused
    images = [image | {"id": number_of[image["id"]]} for image in images]
    annotations = [
        entry | {"image_id": number_of.get(str(entry.get("image_id")))} if isinstance(entry, dict) else entry
        for entry in annotations
    ]
    return images, annotations, labels


def without_rejected(annotations: Any) -> tuple[Any, list[str]]:
    """Annotations without those that VizWiz's own API leaves out, and a note on them."""
    if not isinstance(annotations, list):
        return annotations, []
    kept = [
        entry
        for entry in annotations
        if not (isinstance(entry, dict) and (entry.get("is_rejected") or entry.get("is_precanned")))
    ]
    if len(kept) == len(annotations):
        return annotations, []
    count = len(annotations) - len(kept)
    return kept, [f"left out: {count} captions that are marked is_rejected or is_precanned, as VizWiz's API does"]


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


def images_of(content: Any) -> list[dict[str, Any]] | None:
    """The list of objects that a file's content has as "images"; None where it has none."""
    images = content.get("images") if isinstance(content, dict) else None
    return images if isinstance(images, list) and all(isinstance(image, dict) for image in images) else None


def named(ids: Sequence[str], what: str, noun: str = "image") -> str:
    """The count and the first ten of `ids`."""
    more = ", ..." if len(ids) > _SHOWN else ""
    return f"{len(ids)} {noun}{'' if len(ids) == 1 else 's'} {what} ({', '.join(ids[:_SHOWN])}{more})"


def _coco(path: Path, images: Sequence[Mapping[str, Any]], annotations: Any) -> dict[int, tuple[str, ...]]:
    if not isinstance(annotations, list) or not all(isinstance(entry, dict) for entry in annotations):
        raise BenchError(f'{path}: "annotations" is not a list of objects')
    captions: dict[int, list[str]] = {image_id: [] for image_id in image_ids(path, images, "id")}
    strange = []
    for number, entry in enumerate(annotations):
        image_id, caption = entry.get("image_id"), entry.get("caption")
        if not isinstance(caption, str) or not is_image_id(image_id) or image_id not in captions:
            strange.append(str(entry.get("id", f"entry {number}")))
        else:
            captions[image_id].append(caption)
    if strange:
        raise BenchError(f"{path}: {named(strange, 'with no caption or no image', 'annotation')}")
    return {image_id: tuple(texts) for image_id, texts in captions.items()}


def _of_split(path: Path, images: list[dict[str, Any]], split: str) -> list[dict[str, Any]]:
    if chosen := [image for image in images if image.get("split") == split]:
        return chosen
    splits = ", ".join(sorted({str(image.get("split")) for image in images}))
    raise BenchError(f"{path} has no split {shortened(split)!r}", f"name one of its splits with --split: {splits}")


def sentences_of(image: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The sentences of an image in Karpathy's format that have a text."""
    sentences = image.get("sentences")
    found = []
    for sentence in sentences if isinstance(sentences, list) else []:
        if not isinstance(sentence, dict):
            continue
        tokens = sentence.get("tokens")
        if isinstance(sentence.get("raw"), str):
            found.append(sentence)
        elif isinstance(tokens, list) and tokens and all(isinstance(token, str) for token in tokens):
            found.append(sentence | {"raw": " ".join(tokens)})
    return found


def id_key(images: Sequence[Mapping[str, Any]]) -> str:
    """The key of image ids in Karpathy's format: "cocoid" if all images have one, else "imgid"."""
    return "cocoid" if all("cocoid" in image for image in images) else "imgid"


def _texts(images: Iterable[Mapping[str, Any]], key: str, name: str) -> dict[int, str]:
    return {image[key]: image[name] for image in images if isinstance(image.get(name), str)}


def image_ids(path: Path, images: Iterable[Mapping[str, Any]], key: str) -> list[int]:
    """The ids of a file's images, in its order; BenchError where one is missing, or there twice."""
    ids = [image.get(key) for image in images]
    whole = list(filter(is_image_id, ids))
    if strange := [f"entry {number}" for number, image_id in enumerate(ids) if not is_image_id(image_id)]:
        what = f'without a {WHOLE_NUMBER} as "{key}"'
        raise BenchError(f"{path}: {named(strange, what)}")
    if twice := [str(image_id) for image_id, count in Counter(whole).items() if count > 1]:
        raise BenchError(f"{path}: {named(twice, 'listed more than once')}")
    return whole


def is_image_id(value: object) -> TypeGuard[int]:
    """Whether a JSON value is a whole number of 64 bits, as results databases and arrays hold image ids."""
    return isinstance(value, int) and not isinstance(value, bool) and -_MAX_ID <= value < _MAX_ID


def sanitise_caption(caption: str) -> str:
    r"""`caption` on one line of valid Unicode.

    Line and paragraph ends (\n \r \v \f U+0085 U+2028 U+2029) and the other control characters below U+0020 but tab
    (NUL among them) become a space, as pycocoevalcap does for \n and as the tokenizer does for the harmless ones.
    Unpaired surrogates, which JSON can carry and UTF-8 cannot, become U+FFFD; the tokenizer drops that. The controls
    U+0080 to U+009F stay, U+0085 excepted: the tokenizer reads them as Windows-1252 quotes and dashes.
    """
    return caption.translate(_TO_SPACE).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def sanitise_meteor_field(tokens: str) -> str:
    """Tokenised caption without METEOR's field separator, by the two replacements of pycocoevalcap on candidates.

    It leaves references alone, where a separator would silently count as one more reference.
    """
    return tokens.replace(METEOR_SEPARATOR, "").replace("  ", " ")
