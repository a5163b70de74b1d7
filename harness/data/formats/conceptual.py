"""Conceptual Captions (Sharma et al., ACL 2018): a caption and an address a line, without headings."""

import re
from typing import Final

from harness.data.formats.annotations import Annotations, ReadOptions
from harness.data.formats.content import Content

_LINE: Final = re.compile(r"(?P<caption>[^\t]+)\t(?P<address>https?://\S+)")


def sniff_conceptual(content: Content) -> str:
    return "its lines are a caption, tab, address" if content.lines and _LINE.fullmatch(content.lines[0]) else ""


def read_conceptual(content: Content, options: ReadOptions) -> Annotations:  # noqa: ARG001
    """Images named by the URLs of their pictures, which must be downloaded before training."""
    annotations = Annotations(content.path)
    for line_number, line in enumerate(content.lines, 1):
        match = _LINE.fullmatch(line)
        if match is None:
            annotations.add_problem("lines not of the form caption, tab, address", f"line {line_number}")
        else:
            annotations.image(match["address"], match["address"]).captions.append(match["caption"])
    return annotations
