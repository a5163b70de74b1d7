"""COCO's annotations, and the data sets that use their form: nocaps, VizWiz-Captions, STAIR Captions."""

from collections.abc import Mapping
from typing import Any

from harness.data.dataset import annotated_size
from harness.data.formats.annotations import REJECTED_FIELDS, AnnotatedImage, Annotations, ReadOptions
from harness.data.formats.content import Content
from harness.data.formats.ids import WHOLE_NUMBER, is_image_id, whole_number
from harness.utils.errors import BenchError


def sniff_coco(content: Content) -> str:
    return 'it has "images" and "annotations"' if _variant(content) == "coco" else ""


def sniff_nocaps(content: Content) -> str:
    return 'its images have a "domain"' if _variant(content) == "nocaps" else ""


def sniff_vizwiz(content: Content) -> str:
    return 'its captions have "is_rejected"' if _variant(content) == "vizwiz" else ""


def sniff_stair(content: Content) -> str:
    return 'its captions have a "tokenized_caption"' if _variant(content) == "stair" else ""


def _variant(content: Content) -> str:
    """The data set of annotations in COCO's form, by the keys of its first image and caption; "" for other forms."""
    if not _is_coco(content):
        return ""
    if "domain" in _first_keys(content.top["images"]):
        return "nocaps"
    caption_keys = _first_keys(content.top["annotations"])
    if caption_keys & set(REJECTED_FIELDS):
        return "vizwiz"
    return "stair" if "tokenized_caption" in caption_keys else "coco"


def read_coco(content: Content, options: ReadOptions) -> Annotations:
    """Images by id, with the captions that name it as "image_id".

    Captions that VizWiz marks as rejected or precanned are left out, as its own API does. Ids may be texts.

    Raises:
        BenchError: an image has no id, two have the same, or no image or caption has the field that is asked for.
    """
    path = content.path
    entries = _objects(content, "images")
    captions = _objects(content, "annotations")
    file_key = options.image_field or "file_name"
    caption_key = options.caption_field or "caption"
    for option, field, objects in (
        ("--file-column", options.image_field, entries),
        (options.caption_option, options.caption_field, captions),
    ):
        keys = {name for entry in objects for name in entry}
        if field is not None and field not in keys:
            raise BenchError(
                f"{option} {field}: {path} has no such field", f"choose one of: {', '.join(sorted(keys))[:200]}"
            )
    annotations = Annotations(path)
    names = _names(content, entries)
    for name, entry in zip(names.values(), entries, strict=True):
        annotations.images[name] = _image(annotations, name, entry, file_key)
    for index, entry in enumerate(captions):
        if annotations.rejects(entry):
            continue
        owner = entry.get("image_id")
        image = annotations.images.get(names.get(owner, "")) if isinstance(owner, str | int) else None
        text = entry.get(caption_key)
        if image is None or not isinstance(text, str):
            annotations.add_problem(
                "annotations with no caption or no image", str(entry.get("id", f"entry {index}"))[:40]
            )
        else:
            image.captions.append(text)
    return annotations


def add_instances(annotations: Annotations, content: Content) -> None:
    """Add the boxes of COCO's instances_*.json; an image without any box is known to have none."""
    if not _is_coco(content):
        raise BenchError(
            f'{content.path} is not in COCO\'s format: it has no lists "images" and "annotations"',
            "give instances_*.json with --instances",
        )
    for entry in content.top["images"]:
        if isinstance(entry, dict) and (owner := _owner(annotations, entry.get("id"))):
            owner.boxes = owner.boxes or []
            owner.size = owner.size or annotated_size(entry)
    for entry in content.top["annotations"]:
        if isinstance(entry, dict) and (owner := _owner(annotations, entry.get("image_id"))):
            annotations.add_boxes(owner, [entry.get("bbox")])


def _owner(annotations: Annotations, name: object) -> AnnotatedImage | None:
    return annotations.images.get(name) if isinstance(name, str | int) else None


def _objects(content: Content, key: str) -> list[dict[str, Any]]:
    entries = content.top.get(key)
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise BenchError(
            f'{content.path}: "{key}" is not a list of objects',
            'COCO\'s form is {"images": [{"id": 1, "file_name": "a.jpg"}], "annotations": [{"image_id": 1, ...}]}; '
            "without --format the content tells the form",
        )
    return entries


def _is_coco(content: Content) -> bool:
    return {"images", "annotations"} <= content.top.keys()


def _first_keys(entries: object) -> set[str]:
    first = entries[0] if isinstance(entries, list) and entries else None
    return set(first) if isinstance(first, dict) else set()


def _names(content: Content, entries: list[dict[str, Any]]) -> dict[str | int, str | int]:
    """The names of images by their ids: whole numbers if all are, else texts.

    BenchError for an image without an id, or with the id of another.
    """
    ids = [entry.get("id") for entry in entries]
    numbers = [whole_number(image_id) for image_id in ids]
    are_texts = bool(ids) and all(isinstance(image_id, str) and image_id for image_id in ids)
    if not are_texts and (invalid := [n for n, image_id in enumerate(ids) if not is_image_id(image_id)]):
        examples = ", ".join(f"entry {number}" for number in invalid[:10])
        raise BenchError(f'{content.path}: {len(invalid)} images without a {WHOLE_NUMBER} as "id" ({examples})')
    names: dict[str | int, str | int] = {}
    as_numbers = None not in numbers and len(set(numbers)) == len(numbers)
    repeated = []
    for image_id, number in zip(ids, numbers, strict=True):
        if isinstance(image_id, str | int):
            if image_id in names:
                repeated.append(str(image_id))
            names[image_id] = number if as_numbers and number is not None else image_id
    if repeated:
        noun = "image" if len(repeated) == 1 else "images"
        raise BenchError(f"{content.path}: {len(repeated)} {noun} listed more than once ({', '.join(repeated[:10])})")
    return names


def _image(annotations: Annotations, name: str | int, entry: Mapping[str, Any], file_key: str) -> AnnotatedImage:
    file = entry.get(file_key)
    domain = entry.get("domain")
    if domain is not None and not (isinstance(domain, str) and domain.isprintable()):
        annotations.add_problem("images whose domain is not a plain text", str(name))
        domain = None
    return AnnotatedImage(name, file=file if isinstance(file, str) else "", domain=domain, size=annotated_size(entry))
