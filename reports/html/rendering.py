"""Names of the report's files, and its templates: texts of a store are escaped, and never become paths."""

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib import resources
from itertools import zip_longest
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from reports import numbers
from reports.columns import Cell
from reports.html.plots import COLOURS
from results.text import printable

STYLES = ("style.css", "tables.css", "plots.css", "narrow.css", "print.css")
SCRIPTS = ("address.js", "tables.js", "choice.js", "plots.js")
_MODEL = re.compile(r"[a-z0-9_-]+(/[a-z0-9_-]+)?")
_LINK = re.compile(r"https?://[A-Za-z0-9.-]+(?::\d+)?(?:/[^\s<>\"'`{}|\\^]*)?|arXiv:(\d{4}\.\d{4,5})(?:v\d+)?")
_TRAILING = ".,;:!?)"  # signs that end a sentence rather than an address


def run_page(key: str) -> str:
    """The address of a run's page."""
    return f"run.html?run={quote(key, safe='')}"


def runs_file(model: str) -> str:
    """The script that holds the pages of a model's runs."""
    return model_page(model).replace("models/", "runs/").removesuffix(".html") + ".js"


def packed(pages: Mapping[str, str]) -> str:
    """Pages by name as text that a script of the report unpacks: JSON, gzip, base64.

    Sections are ordered by their position in pages, because gzip compresses similar texts better if they are near.
    """
    sections = [re.split("(?=<section)", page) for page in pages.values()]
    return compressed({"names": list(pages), "sections": list(zip_longest(*sections, fillvalue=""))})


def compressed(content: object) -> str:
    """JSON that a script of the report unpacks: gzip, base64."""
    text = json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")
    return base64.b64encode(gzip.compress(text, 9, mtime=0)).decode()


def model_page(model: str) -> str:
    """The page of a model: `family.variant.html`; a name that the zoo does not allow is replaced by its digest."""
    plain = len(model) <= 120 and _MODEL.fullmatch(model)
    return f"models/{model.replace('/', '.') if plain else _digest(model)}.html"


def template_environment(navigation: Iterable[tuple[str, str]]) -> Environment:
    """The templates, with the pages that every one links to as (file, name)."""
    environment = Environment(
        loader=PackageLoader("reports.html"),
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
        "json": lambda value: json.dumps(value, ensure_ascii=False),
        "lower_first": lambda text: text[:1].lower() + text[1:],
        "hue": lambda colour: f"c{colour % COLOURS} s{colour // COLOURS}",
    }
    environment.globals |= {
        "navigation": list(navigation),
        "scripts": SCRIPTS,
        "written": numbers.instant(datetime.now(UTC)),
        "style": Markup(style()),
    }
    return environment


def style() -> str:
    """The style of all pages."""
    return "".join(asset(name) for name in STYLES)


def asset(name: str) -> str:
    return resources.files("reports.html").joinpath("templates", name).read_text(encoding="utf-8")


def linked(text: str) -> Markup:
    """The text, escaped, with its http(s) addresses and arXiv numbers as links; anything else stays text."""
    text = printable(text)
    parts: list[Markup | str] = []
    end = 0
    for match in _LINK.finditer(text):
        address = match[0].rstrip(_TRAILING)
        target = f"https://arxiv.org/abs/{match[1]}" if match[1] else address
        link = Markup('<a class="out" rel="noreferrer" href="{}">{}</a>').format(target, address)
        parts += [escape(text[end : match.start()]), link]
        end = match.start() + len(address)
    return Markup("").join([*parts, escape(text[end:])])


def _printable(value: Any) -> Any:
    """Text without characters that HTML forbids; `Markup` is made of such text."""
    # Python's own test is stricter and much faster, and most text passes it.
    is_text = isinstance(value, str) and not isinstance(value, Markup)
    return printable(value) if is_text and not value.isprintable() else value


def _places(by_metric: Mapping[str, Cell]) -> str:
    """Ranks by other metrics as JSON, for a table that is sorted by one: text, value to sort by, reason, ranks."""
    return json.dumps({name: [cell.text, cell.value, cell.reason, cell.ranks] for name, cell in by_metric.items()})


def _breakable(text: str, after: str = "|") -> Markup:
    return Markup(f"{escape(after)}<wbr>").join(escape(part) for part in printable(text).split(after))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
