"""The JSON of Karpathy and Fei-Fei (CVPR 2015): COCO, Flickr8k, Flickr30k, and RSICD, UCM and Sydney after them."""

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from harness.data.dataset import annotated_size
from harness.data.formats.annotations import SPLIT_NAMES, AnnotatedImage, Annotations, ReadOptions
from harness.data.formats.content import Content
from harness.data.formats.ids import image_ids


def sniff_karpathy(content: Content) -> str:
    """Images with their sentences."""
    images = images_of(content.value)
    if images is None or "annotations" in content.top or not any("sentences" in image for image in images):
        return ""
    return 'its images have "sentences"'


def read_karpathy_json(content: Content, options: ReadOptions) -> Annotations:  # noqa: ARG001
    """Images by their "cocoid", or "imgid", with raw sentences, or tokens alone; BenchError as `image_ids`."""
    images = images_of(content.value) or []
    annotations = Annotations(content.path, id_field=id_key(images))
    for image_id, entry in zip(image_ids(content.path, images, annotations.id_field), images, strict=True):
        name = entry.get("filename", entry.get("file_name"))
        folder = entry.get("filepath")
        split = entry.get("split")
        domain = entry.get("domain")
        if domain is not None and not (isinstance(domain, str) and domain.isprintable()):
            annotations.add_problem("images whose domain is not a plain text", str(image_id))
            domain = None
        annotations.images[image_id] = AnnotatedImage(
            image_id,
            file=str(PurePosixPath(folder if isinstance(folder, str) else "", name)) if isinstance(name, str) else "",
            captions=[sentence["raw"] for sentence in sentences_of(entry)],
            split=None if split is None else SPLIT_NAMES.get(str(split), str(split)),
            domain=domain,
            size=annotated_size(entry),
        )
    sentences = [sentence for entry in images for sentence in listed_sentences(entry)]
    left_out = len(sentences) - annotations.caption_count
    if left_out:
        annotations.notes.append(f"left out: {left_out:,} sentences without a text")
    return annotations


def images_of(content: Any) -> list[dict[str, Any]] | None:
    """The list of objects that a file's content has as "images"; None if it has none."""
    images = content.get("images") if isinstance(content, dict) else None
    return images if isinstance(images, list) and all(isinstance(image, dict) for image in images) else None


def id_key(images: Sequence[Mapping[str, Any]]) -> str:
    """The key of image ids in Karpathy's format: "cocoid" if all images have one, else "imgid"."""
    return "cocoid" if all("cocoid" in image for image in images) else "imgid"


def listed_sentences(image: Mapping[str, Any]) -> list[Any]:
    """The sentences of an image; empty if they are not a list."""
    sentences = image.get("sentences")
    return sentences if isinstance(sentences, list) else []


def sentences_of(image: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The sentences of an image that have a text; tokens alone are joined by spaces."""
    with_text = []
    for sentence in listed_sentences(image):
        if isinstance(sentence, str):
            with_text.append({"raw": sentence})
        if not isinstance(sentence, dict):
            continue
        tokens = sentence.get("tokens")
        if isinstance(sentence.get("raw"), str):
            with_text.append(sentence)
        elif isinstance(tokens, list) and tokens and all(isinstance(token, str) for token in tokens):
            with_text.append(sentence | {"raw": " ".join(tokens)})
    return with_text
