"""Token files: Flickr8k.token.txt, Flickr30k's results_20130124.token, and COCO-CN and Flickr8k-CN after them."""

import re
from typing import Final

from harness.data.formats.annotations import SPLIT_NAMES, Annotations, ReadOptions
from harness.data.formats.content import Content
from harness.data.formats.text import lines_of, read_encoded

_LINE: Final = re.compile(r"(?P<name>[^#\t]+)#(?:\w+#)?\d+[\t ]+(?P<caption>.*)")


def sniff_tokens(content: Content) -> str:
    """Recognise lines of a picture, a number and a caption, such as "a.jpg#0", a tab, "A dog ."."""
    lines = content.lines
    return "its lines are NAME#N, tab, caption" if lines and _LINE.fullmatch(lines[0]) else ""


def read_tokens(content: Content, options: ReadOptions) -> Annotations:  # noqa: ARG001
    """Pictures by name; their splits are files of names beside it, such as Flickr_8k.trainImages.txt."""
    path = content.path
    lines = content.lines
    annotations = Annotations(path)
    files = {split: file for file in path.parent.glob("*Images.txt") if (split := _split_of(file.name))}
    splits = {line.strip(): split for split, file in files.items() for line in lines_of(read_encoded(file))}
    for line_number, line in enumerate(lines, 1):
        match = _LINE.fullmatch(line)
        if match is None:
            annotations.add_problem("lines not of the form NAME.jpg#N, tab, caption", f"line {line_number}")
            continue
        image = annotations.image(match["name"].strip(), match["name"].strip())
        image.captions.append(match["caption"])
        image.split = splits.get(image.file)
    without = [name for name, image in annotations.images.items() if image.split is None]
    if files and without:
        annotations.notes.append(f"left out: {len(without)} pictures that are in none of the files of splits")
        for name in without:
            del annotations.images[name]
    return annotations


def _split_of(name: str) -> str | None:
    return next((SPLIT_NAMES[part] for part in re.findall(r"train|dev|val|test", name.lower())), None)
