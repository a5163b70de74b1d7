"""Read reference captions from COCO's annotations, and from Karpathy's and nocaps's JSON, plain or gzipped.

Captions are sanitised for the line-based Java programs, without changing any score otherwise: the tokenizer reads one
caption per line, so a character that Java takes for a line end would silently assign every later caption to the wrong
image, and METEOR separates the fields of a line by `|||`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final, TypeGuard

from harness.utils.errors import BenchError
from harness.utils.files import shortened
from harness.utils.json_io import read_json

_SHOWN = 10
_SPLIT = "test"
WHOLE_NUMBER = "whole number of 64 bits"
_MAX_ID = 2**63
_LINE_ENDS: Final = "\n\r\v\f\u0085\u2028\u2029"
_CONTROLS: Final = "".join(map(chr, range(32))).replace("\t", "")
_TO_SPACE: Final = dict.fromkeys(map(ord, _LINE_ENDS + _CONTROLS), " ")
METEOR_SEPARATOR: Final = "|||"


@dataclass(frozen=True, slots=True)
class References:
    """Reference captions by image id, in the order of the file's images; domains and file names if it has them.

    `others` are ids of the file's images of other splits.
    """

    name: str
    captions: dict[int, tuple[str, ...]]
    domains: dict[int, str] = field(default_factory=dict)
    files: dict[int, str] = field(default_factory=dict)
    others: frozenset[int] = frozenset()


def read_references(path: Path, *, split: str | None = None) -> References:
    """Read COCO's annotations (as nocaps's, with a domain per image) or Karpathy's JSON, of which `split` is read.

    Without `split` that is its test split. BenchError where the file cannot be read, has another format, or images
    without captions, or `split` is given for a file without splits.
    """
    return references_of(read_json(path), path, split=split)


def references_of(content: Any, path: Path, *, split: str | None = None) -> References:
    """As `read_references`, of the content of a file."""
    if (images := images_of(content)) is None:
        raise BenchError(
            f"{path} holds no reference captions",
            "give COCO's annotations (captions_val2014.json), nocaps's or Karpathy's JSON (dataset_coco.json)",
        )
    listed = images
    if "annotations" in content:
        if split is not None:
            raise BenchError(
                f"--split {shortened(split)!r} chooses from a Karpathy file, but {path} is in COCO's format, "
                "which names no splits",
                "leave --split out: all of its images are read",
            )
        key, found = "id", _coco(path, images, content["annotations"])
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
    return References(path.name.partition(".")[0], found, domains, files, others)


def read_image_ids(path: Path) -> list[int]:
    """The ids of a file's images, with or without captions, in its order; BenchError as `read_references`."""
    if not (images := images_of(read_json(path))):
        raise BenchError(f'{path} has no list of objects named "images"')
    return image_ids(path, images, next((key for key in ("id", "cocoid") if key in images[0]), "imgid"))


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
    told = image.get("sentences")
    listed = told if isinstance(told, list) else []
    return [each for each in listed if isinstance(each, dict) and isinstance(each.get("raw"), str)]


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
