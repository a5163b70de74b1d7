"""The HTML report: one folder of plain pages that opens from disk, reads without a script and needs no network."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from reports.html.attention import attention_pages, stored_maps
from reports.html.board_columns import board_layout
from reports.html.costs import cost_list, cost_sections
from reports.html.curves import curve_plots, curve_sections, training_end
from reports.html.domains import domain_sections
from reports.html.folder import replaced
from reports.html.gallery import gallery_pages
from reports.html.legend import colours
from reports.html.method import method
from reports.html.model_results import ExamplesByRun, examples_by_run
from reports.html.models import flat, model_pages
from reports.html.pages import run_page
from reports.html.rendering import SCRIPTS, asset, template_environment
from reports.html.sections import facets, score_tables, summary
from reports.html.trade_offs import trade_off_sections
from reports.tables.contamination import contamination
from reports.tables.deviations import deviations
from reports.tables.facts import card
from reports.tables.leaderboard_page import boards, row_labels
from reports.tables.tables import signature_text
from reports.tables.verdict import needs_longer_training
from results.runs import reading
from results.runs.controls import controls
from results.runs.leaderboard import RANKING_METRIC, Group, leaderboard
from results.runs.run import Run
from results.store.store import Store


def write_report(store: Store, out_dir: Path, metric: str = RANKING_METRIC, *, place_unfinished: bool = False) -> Path:
    """Write the report of everything in the store; the folder is replaced as a whole, at the very end.

    Args:
        store: results to show; an empty store gives a report that says so.
        out_dir: the report's folder. It must be absent, empty, or an earlier report.
        metric: what tables are sorted and rows placed by.
        place_unfinished: place rows that were still learning, too.

    Returns:
        Path: the leaderboard, `out_dir/index.html`.

    Raises:
        ReportError: `out_dir` holds something else, or cannot be written.
        StoreError: the store cannot be read, or has no score of this metric.
    """
    groups = leaderboard(store, metric, place_unfinished=place_unfinished)
    with replaced(out_dir) as folder:
        for name in ("gallery", "models", "runs"):
            (folder / name).mkdir()
        for name in (*SCRIPTS, "gallery_words.js", "gallery_viewer.js", "gallery_choice.js", "gallery.js"):
            (folder / name).write_text(asset(name), encoding="utf-8")
        _write_pages(store, groups, folder)
    return out_dir / "index.html"


def _write_pages(store: Store, groups: Sequence[Group], folder: Path) -> None:
    datasets, failures = reading.datasets(store), reading.failures(store)
    finished = reading.finished(store)
    runs = reading.runs_by_key(store, [*(run.key for run in finished), *(failure.key for failure in failures)])
    colour = colours(runs.values())
    labels = row_labels(groups)
    maps = stored_maps(store, groups, labels)
    mapped = {place: shown.captions.keys() for place, shown in maps.items()}
    galleries = gallery_pages(store, groups, datasets, labels, mapped, folder, finished)
    attention = attention_pages(maps, galleries)
    domains = domain_sections(groups, datasets, runs, {place: page.domains for place, page in galleries.items()})
    trade_offs = trade_off_sections(groups, datasets, runs, colour)
    examples = {place: examples_by_run(page) for place, page in galleries.items()}
    models = model_pages(list(runs.values()), groups, datasets, examples)

    navigation = [("index.html", "Leaderboard")]
    navigation += [("nocaps.html", "Domains")] if domains else []
    navigation += [("costs.html", "Costs"), ("trade-offs.html", "Trade-offs"), ("curves.html", "Curves")]
    navigation += [("gallery.html", "Gallery")] if galleries else []
    navigation += [("models.html", "Models"), ("method.html", "Method")]
    environment = template_environment(navigation)

    def write(file: str, template: str, page: str | None = None, **content: Any) -> None:
        root = "../" * file.count("/")
        text = environment.get_template(template).render(page=page or file, root=root, **content)
        (folder / file).write_text(text, encoding="utf-8")

    beside = controls(store, groups, finished)
    shown = boards(groups, datasets, runs, beside)
    write(
        "index.html",
        "index.html.j2",
        summary=summary(groups, failures, datasets),
        longer=needs_longer_training(groups),
        sections=shown,
        layouts={board.id: board_layout(board) for board in shown},
        facets=facets(shown),
        failures=failures,
        skipped=[(dataset.name, dataset.skipped) for dataset in datasets if dataset.skipped],
    )
    if domains:
        write("nocaps.html", "nocaps.html.j2", sections=domains)
    write("costs.html", "costs.html.j2", sections=cost_sections(groups, runs))
    write("trade-offs.html", "trade_offs.html.j2", sections=trade_offs)
    write("curves.html", "curves.html.j2", sections=curve_sections(groups, runs, colour))
    for gallery in galleries.values():
        write(gallery.file, "gallery.html.j2", "gallery.html", gallery=gallery, galleries=list(galleries.values()))
        for file, text in gallery.data.items():
            (folder / file).write_text(text, encoding="utf-8")
    for page in attention:
        style = Markup(asset("attention.css"))
        content = {"attention": page, "others": attention, "attention_style": style}
        write(page.file, "attention.html.j2", "gallery.html", **content)
        (folder / "attention.js").write_text(asset("attention.js"), encoding="utf-8")
        for file, text in page.scripts.items():
            (folder / file).write_text(text, encoding="utf-8")
    write("models.html", "models.html.j2", models=models)
    for model in models:
        write(model.file, "model.html.j2", "models.html", model=model)
    write("method.html", "method.html.j2", method=method(groups, datasets, runs, beside, colour))
    for run in runs.values():
        write(run_page(run.key), "run.html.j2", "models.html", **_run_content(run, colour, examples))


def _run_content(
    run: Run, colour: Mapping[str, int], examples: Mapping[tuple[str, str], ExamplesByRun]
) -> dict[str, Any]:
    described = card(run)
    seen = {split: contamination(described.pretraining, run.dataset, split) for split in run.scores}
    return {
        "run": run,
        "card": described,
        "deviations": deviations(run.config),
        "contamination": {split: found for split, found in seen.items() if found},
        "signature": signature_text(run.signature),
        "scores": score_tables(run),
        "examples": {split: examples.get((run.fingerprint, split), {}).get(run.key, ()) for split in run.scores},
        "costs": cost_list(run.costs),
        "plots": curve_plots([[run]], colour),
        "ended": training_end(run),
        "environment": flat(run.environment),
        "config": json.dumps(run.config, indent=2, ensure_ascii=False),
    }
