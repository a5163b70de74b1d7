"""Written pages, parsed into elements."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

from reports.html.rendering import run_page

VOID = {"meta", "link", "img", "br", "wbr", "input"}


@dataclass
class Element:
    """A parsed element with its own and its descendants' text."""

    tag: str
    attributes: dict[str, str]
    text: str = ""
    children: list[Element] = field(default_factory=list)

    def find(self, tag: str, **attributes: str) -> Iterator[Element]:
        """Descendants of this tag whose attributes contain these words."""
        for child in self.children:
            wanted = all(
                value in child.attributes.get(name.rstrip("_"), "").split() for name, value in attributes.items()
            )
            if child.tag == tag and wanted:
                yield child
            yield from child.find(tag, **attributes)


def run_texts(report: Path) -> dict[str, str]:
    """The pages of runs by their address, as the report's script unpacks them."""
    texts = {}
    for file in (report / "runs").glob("*.js"):
        found = re.fullmatch(r'captionbench\.runs\("([A-Za-z0-9+/=]*)"\);\n', file.read_text(encoding="utf-8"))
        assert found, file
        content = json.loads(gzip.decompress(base64.b64decode(found[1])))
        for index, key in enumerate(content["names"]):
            texts[run_page(key)] = "".join(of[index] for of in content["sections"])
    return texts


class Page(HTMLParser):
    """Parses a page, or the text of one, into elements and fails on tags that do not match."""

    def __init__(self, page: Path | str) -> None:
        super().__init__()
        self.root = Element("", {})
        self.stack = [self.root]
        self.feed(page if isinstance(page, str) else page.read_text(encoding="utf-8"))
        assert len(self.stack) == 1, f"<{self.stack[-1].tag}> is never closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.stack[-1].children.append(element)
        if tag not in VOID:
            self.stack.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.stack[-1].children.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop().tag == tag, f"</{tag}> at {self.getpos()}"

    def handle_data(self, data: str) -> None:
        for element in self.stack:
            element.text += data


def rows(table: Element) -> list[tuple[str, list[Element]]]:
    """Name and number cells of the rows of a table, its heading left out."""
    return [
        (next(row.find("th")).text, list(row.find("td"))) for body in table.find("tbody") for row in body.find("tr")
    ]


def every(element: Element) -> Iterator[Element]:
    for child in element.children:
        yield child
        yield from every(child)
