"""Captions by image, as objects or lists: TextCaps, R2Gen, LLaVA, Localized Narratives, and what tools write."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from harness.data.dataset import annotated_size
from harness.data.formats.annotations import SPLIT_NAMES, Annotations, ReadOptions
from harness.data.formats.caption_tables import (
    CAPTION_FIELDS,
    FILE_FIELDS,
    ID_FIELDS,
    IMAGE_FIELDS,
    METADATA,
    NUMBERED_CAPTION,
    which_captions,
)
from harness.data.formats.content import Content
from harness.data.formats.table import caption_list
from harness.utils.errors import BenchError
from harness.utils.files import shortened

_PROMPT: Final = re.compile(r"<image>|<im_start>|<im_end>")


def sniff_textcaps(content: Content) -> str:
    """Recognise a list "data" of captions, each with all the references of its image."""
    data = content.top.get("data")
    first = data[0] if isinstance(data, list) and data and isinstance(data[0], dict) else {}
    return 'its "data" have "reference_strs"' if {"image_id", "reference_strs"} <= first.keys() else ""


def read_textcaps(content: Content, options: ReadOptions) -> Annotations:  # noqa: ARG001
    """Images by id; the references are taken once, though each caption repeats them."""
    annotations = Annotations(content.path)
    for index, entry in enumerate(content.top.get("data", [])):
        texts = captions_of(entry.get("reference_strs")) if isinstance(entry, dict) else []
        name = entry.get("image_id") if isinstance(entry, dict) else None
        if not texts or not isinstance(name, str | int):
            annotations.add_problem("entries without an id or references", f"entry {index}")
            continue
        image = annotations.image(name)
        if image.captions != texts:
            image.captions += texts
    return annotations


def sniff_reports(content: Content) -> str:
    """Recognise lists of objects by split."""
    if not content.top or not SPLIT_NAMES.keys() >= content.top.keys():
        return ""
    lists = list(content.top.values())
    are_lists = all(
        isinstance(entries, list) and all(isinstance(entry, dict) for entry in entries) for entries in lists
    )
    return f"its keys are the splits {', '.join(content.top)}" if are_lists and any(lists) else ""


def read_reports(content: Content, options: ReadOptions) -> Annotations:
    """An entry an image, with a text and one picture or several, of which the first is taken.

    Raises:
        BenchError: these are no lists by split, no entry has a field of captions, or several hold different ones.
    """
    if not sniff_reports(content):
        raise BenchError(f"{content.path} has no lists of objects by split", "name them train, val and test")
    annotations = Annotations(content.path)
    entries = [entry for split_entries in content.top.values() for entry in split_entries]
    caption_field = caption_field_of(content.path, entries, options)
    n_with_several = 0
    for split, split_entries in content.top.items():
        for index, entry in enumerate(split_entries):
            where = f"{split}, entry {index}"
            pictures = entry.get(options.image_field or _first_of(entry, FILE_FIELDS))
            file = _first_picture(pictures)
            name = entry.get(_first_of(entry, (*ID_FIELDS, "id")), file)
            texts = captions_of(entry.get(caption_field))
            if file is None and _first_of(entry, ID_FIELDS):
                file = ""
            if file is None or not isinstance(name, str | int) or isinstance(name, bool):
                annotations.add_problem("entries without a picture", where)
                continue
            if not texts:
                annotations.add_problem("entries without a text", where)
                continue
            image = annotations.image(name, file.replace("\\", "/"))
            image.captions += texts
            image.size = annotated_size(entry)
            annotations.set_split(image, split, where)
            n_with_several += isinstance(pictures, list) and len(pictures) > 1
    if n_with_several:
        annotations.notes.append(f"{n_with_several:,} entries have several pictures, of which only the first is used")
    return annotations


def sniff_llava(content: Content) -> str:
    return 'its objects have "conversations"' if "conversations" in content.first else ""


def read_llava(content: Content, options: ReadOptions) -> Annotations:  # noqa: ARG001
    """Conversations of one question and one answer, which is the caption; longer ones are left out."""
    annotations = Annotations(content.path)
    n_longer = 0
    for index, entry in enumerate(content.entries):
        answers = [turn.get("value") for turn in _turns(entry) if turn.get("from") in ("gpt", "assistant")]
        file = _first_picture(entry.get("image"))
        if not answers or not isinstance(answers[0], str) or file is None:
            annotations.add_problem("conversations without a picture or an answer", f"entry {index}")
        elif len(answers) > 1:
            n_longer += 1
        else:
            annotations.image(file, file.replace("\\", "/")).captions.append(_PROMPT.sub("", answers[0]).strip())
    if n_longer:
        annotations.notes.append(f"left out: {n_longer:,} conversations of more than one answer, which are no captions")
    return annotations


def sniff_narratives(content: Content) -> str:
    is_narrative = {"annotator_id", "caption"} <= content.first.keys()
    return 'its objects have "annotator_id" and "caption"' if is_narrative else ""


def sniff_by_image(content: Content) -> str:
    """Recognise an object whose keys are images and whose values are captions."""
    if not content.top or sniff_reports(content) or content.path.name in METADATA:
        return ""
    if content.top.keys() & {"images", "annotations", "data"} or _rows(content):
        return ""
    values = list(content.top.values())
    return "its keys are images, its values captions" if all(captions_of(value) for value in values) else ""


def read_by_image(content: Content, options: ReadOptions) -> Annotations:  # noqa: ARG001
    """Read one or several captions by image, as texts or as objects with "caption" or "raw"."""
    annotations = Annotations(content.path)
    for name, value in content.top.items():
        texts = captions_of(value)
        if not texts:
            annotations.add_problem("images without a text as caption", shortened(name, 40))
        image = annotations.image(name)
        image.captions += texts
        if isinstance(value, dict) and value.get("split") not in (None, ""):
            annotations.set_split(image, value["split"], shortened(name, 40))
    return annotations


def sniff_list(content: Content) -> str:
    """Recognise objects with an image and one or several captions."""
    if sniff_llava(content) or sniff_narratives(content) or content.path.name in METADATA:
        return ""
    first = content.first or (_rows(content) or [{}])[0]
    image = _first_of(first, IMAGE_FIELDS)
    caption = _first_of(first, CAPTION_FIELDS)
    return f"its objects have {image} and {caption}" if image and caption else ""


def _rows(content: Content) -> list[dict[str, Any]]:
    """The objects of an object whose keys count them, as pandas writes it by index; none where the keys are images."""
    values = list(content.top.values())
    fields = (*ID_FIELDS, *FILE_FIELDS)
    if not values or not all(isinstance(value, dict) and _first_of(value, fields) for value in values):
        return []
    return values if all(_first_of(value, CAPTION_FIELDS) for value in values) else []


def read_list(content: Content, options: ReadOptions) -> Annotations:
    """An object an image or a caption, as JSON or a line each.

    Raises:
        BenchError: no object has a field of captions, or several hold different ones.
    """
    annotations = Annotations(content.path)
    entries = content.entries or _rows(content)
    caption_field = caption_field_of(content.path, entries, options)
    for index, entry in enumerate(entries):
        where = f"entry {index}"
        if annotations.rejects(entry):
            continue
        file = _first_picture(entry.get(options.image_field or _first_of(entry, FILE_FIELDS))) or ""
        name = entry.get(options.image_field or _first_of(entry, (*ID_FIELDS, *FILE_FIELDS, "id")))
        texts = captions_of(entry.get(caption_field))
        if not isinstance(name, str | int) or isinstance(name, bool) or not texts:
            annotations.add_problem("entries without an image or a caption", where)
            continue
        image = annotations.image(name, file.replace("\\", "/"))
        image.captions += texts
        image.size = image.size or annotated_size(entry)
        if entry.get("split") not in (None, ""):
            annotations.set_split(image, entry["split"], where)
    return annotations


def captions_of(value: Any) -> list[str]:
    """The captions in a value: a text, or a list of texts or of objects with one; empty for anything else."""
    if isinstance(value, str):
        return caption_list(value) or [value]
    texts = []
    for item in value if isinstance(value, list | tuple) else [value]:
        text = next((item[key] for key in ("caption", "raw") if key in item), None) if isinstance(item, dict) else item
        if not isinstance(text, str):
            return []
        texts.append(text)
    return texts


def caption_field_of(path: Path, entries: Sequence[Mapping[str, Any]], options: ReadOptions) -> str:
    """The field of the captions: the chosen one, or the one with a known name."""
    keys = dict.fromkeys(key for entry in entries for key in entry)
    if options.caption_field is not None:
        if options.caption_field in keys:
            return options.caption_field
        raise BenchError(
            f"{options.caption_option} {shortened(options.caption_field)}: {path} has no such field",
            f"choose one of: {', '.join(keys)[:200]}",
        )
    known_fields = [name for name in CAPTION_FIELDS if name in keys]
    if numbered := [key for key in keys if NUMBERED_CAPTION.fullmatch(key.lower())]:
        fields = [*known_fields, *numbered]
        raise BenchError(
            f"{path} has its captions in several fields: {', '.join(fields)[:200]}",
            f'write them as a list, "captions": [...]; or choose one: {options.caption_option} {fields[0]}',
        )
    if not known_fields:
        raise BenchError(
            f"{path} has no captions: the keys of its objects are {', '.join(keys)[:200] or 'none'}",
            f"name the key of the captions: {options.caption_option} KEY",
        )
    first = known_fields[0]
    differing = [name for name in known_fields[1:] if any(entry.get(name) != entry.get(first) for entry in entries)]
    if differing:
        raise which_captions(path, [first, *differing], options)
    return first


def _first_of(entry: Mapping[str, Any], fields: Sequence[str]) -> str:
    return next((name for name in fields if name in entry), "")


def _first_picture(value: Any) -> str | None:
    """The file that an entry names, or the first of its list; None if it names none."""
    if isinstance(value, list) and value:
        value = value[0]
    return value if isinstance(value, str) and value.strip() else None


def _turns(entry: Mapping[str, Any]) -> list[dict[str, Any]]:
    turns = entry["conversations"] if isinstance(entry.get("conversations"), list) else []
    return [turn for turn in turns if isinstance(turn, dict)]
