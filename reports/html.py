"""The HTML report: one folder of plain pages that opens from disk, reads without a script and needs no network."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from reports import numbers, sections
from reports.curves import curve_plots
from reports.folder import replaced
from reports.gallery import gallery_pages
from reports.tables import signature_text
from results import queries
from results.store import Store
from results.views import RunDetail

_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}")


def write_report(store: Store, out_dir: Path) -> Path:
    """Write the report of everything in the store; the folder is replaced as a whole, at the very end.

    Args:
        store: results to show; an empty store gives a report that says so.
        out_dir: the report's folder. It must be absent, empty, or an earlier report.

    Returns:
        Path: the leaderboard, `out_dir/index.html`.

    Raises:
        ReportError: `out_dir` holds something else, or cannot be written.
        StoreError: the store cannot be read.
    """
    groups = queries.leaderboard(store)
    datasets = queries.datasets(store)
    failures = queries.failures(store)
    costs = queries.costs_table(store)
    runs = [queries.run_detail(store, key) for key in (*(row.key for row in costs), *(row.key for row in failures))]
    galleries = gallery_pages(store, groups, datasets, sections.row_labels(groups))
    colours = sections.colours(runs)

    navigation = [("index.html", "Leaderboard"), ("costs.html", "Costs"), ("curves.html", "Curves")]
    navigation += [("gallery.html", "Gallery")] if galleries else []
    environment = _environment(navigation)
    with replaced(out_dir) as folder:

        def write(file: str, template: str, **content: Any) -> None:
            root = "../" * file.count("/")
            page = "gallery.html" if template == "gallery.html.j2" else file
            text = environment.get_template(template).render(page=page, root=root, **content)
            (folder / file).write_text(text, encoding="utf-8")

        (folder / "runs").mkdir()
        for asset in ("style.css", "script.js"):
            content = resources.files("reports").joinpath("templates", asset).read_text(encoding="utf-8")
            (folder / asset).write_text(content, encoding="utf-8")
        write(
            "index.html",
            "index.html.j2",
            summary=sections.summary(groups, failures, datasets),
            sections=sections.boards(groups, datasets, colours),
            failures=failures,
            skipped=[(dataset.name, dataset.skipped) for dataset in datasets if dataset.skipped],
        )
        write("costs.html", "costs.html.j2", sections=sections.costs(groups, costs))
        write("curves.html", "curves.html.j2", sections=sections.curves(runs, colours))
        for page in galleries:
            write(page.file, "gallery.html.j2", gallery=page, galleries=galleries)
        for run in runs:
            write(_run_page(run.key), "run.html.j2", **_run_content(run, colours))
    return out_dir / "index.html"


def _run_content(run: RunDetail, colours: Mapping[str, int]) -> dict[str, Any]:
    return {
        "run": run,
        "signature": signature_text(run.signature),
        "scores": sections.score_tables(run),
        "costs": sections.cost_list(run.costs),
        "plots": curve_plots([run], colours),
        "environment": sections.flat(run.environment),
        "config": json.dumps(run.config, indent=2, ensure_ascii=False),
    }


def _environment(navigation: Iterable[tuple[str, str]]) -> Environment:
    """Templates of this package: everything is escaped, and a name that does not exist is an error."""
    environment = Environment(
        loader=PackageLoader("reports"),
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
        "run_page": _run_page,
        "breakable": _breakable,
    }
    environment.globals |= {"navigation": list(navigation), "written": numbers.instant(datetime.now(UTC))}
    return environment


def _printable(value: Any) -> Any:
    """Text without characters that HTML forbids; `Markup` stays what it is."""
    return type(value)(numbers.printable(value)) if isinstance(value, str) else value


def _breakable(text: str, after: str = "|") -> Markup:
    """Text that may wrap after a character, without changing what is copied."""
    return Markup(f"{escape(after)}<wbr>").join(escape(part) for part in text.split(after))


def _run_page(key: str) -> str:
    """The page of a run; a key that is no plain file name is replaced by its digest."""
    name = key if _FILE_NAME.fullmatch(key) else hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()
    return f"runs/{name}.html"
