"""Templates of this package: every text of a store is escaped, and a name that does not exist is an error."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from reports.html.links import linked
from reports.html.pages import model_page, run_page
from reports.html.sections import COLOURS
from reports.html.template_cache import TemplateCache
from reports.tables import numbers
from reports.tables.table_values import TableValue

STYLES = ("style.css", "tables.css", "plots.css", "narrow.css", "print.css")
SCRIPTS = ("address.js", "tables.js", "choice.js", "plots.js")


def template_environment(navigation: Iterable[tuple[str, str]]) -> Environment:
    """The templates, with the pages that every one links to as (file, name)."""
    environment = Environment(
        loader=PackageLoader("reports.html"),
        bytecode_cache=TemplateCache(),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "percent": numbers.percent,
        "significant": numbers.significant,
        "duration": numbers.duration,
        "instant": numbers.instant,
        "run_page": run_page,
        "model_page": model_page,
        "breakable": _breakable,
        "linked": linked,
        "places": _places,
        "file_list": lambda files: _file_list(tuple(files)),
        "hue": lambda colour: f"c{colour % COLOURS} s{colour // COLOURS}",
    }
    environment.globals |= {
        "navigation": list(navigation),
        "scripts": SCRIPTS,
        "written": numbers.instant(datetime.now(UTC)),
        "style": Markup("".join(asset(name) for name in STYLES)),
    }
    return environment


def asset(name: str) -> str:
    """A file beside the templates."""
    return resources.files("reports.html").joinpath("templates", name).read_text(encoding="utf-8")


def _printable(value: Any) -> Any:
    """Text without characters that HTML forbids; `Markup` is made of such text."""
    # Most text is printable as Python has it, which is stricter, and much quicker to find out.
    if not isinstance(value, str) or isinstance(value, Markup) or value.isprintable():
        return value
    return numbers.printable(value)


def _places(by_metric: Mapping[str, TableValue]) -> str:
    """What a table that is sorted by another metric shows, as JSON: text, value to sort by, explanation, ranks."""
    return json.dumps({name: [cell.text, cell.value, cell.reason, cell.ranks] for name, cell in by_metric.items()})


@cache
def _file_list(files: tuple[tuple[str, str], ...]) -> Markup:
    """Files and their digests as items of a list; runs of one model have the same hundreds, which are cached."""
    items = (f"<li><code>{escape(digest)}</code> {escape(file)}</li>" for file, digest in files)
    return Markup(numbers.printable("".join(items)))


def _breakable(text: str, after: str = "|") -> Markup:
    """Text that may wrap after a character, without changing what is copied."""
    return Markup(f"{escape(after)}<wbr>").join(escape(part) for part in numbers.printable(text).split(after))
