"""The HTML report: one folder of plain pages that opens from disk, can be read without scripts and needs no network.

The folder is replaced as a whole, so that a reader never sees a partial report, or pages of an old one.
"""

import glob
import json
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # not a POSIX system: nothing is locked, and abandoned folders stay
    fcntl = None  # type: ignore[assignment]

from reports.columns import cost_list
from reports.html.attention import attention_pages, stored_maps
from reports.html.gallery import LONG_CAPTION, RECORDED, PictureSource, gallery_pages, pieces, stems
from reports.html.models import ExamplesByRun, examples_by_run, flat, model_pages, score_table
from reports.html.plots import colours
from reports.html.rendering import SCRIPTS, asset, packed, run_page, runs_file, style, template_environment
from reports.html.sections import cost_sections, domain_sections, facets, method, scale, summary
from reports.html.trade_offs import curve_plots, curve_sections, trade_off_sections, training_end
from reports.tables.boards import boards, row_labels
from reports.tables.conditions import menus
from reports.tables.contents import Contents
from reports.tables.facts import card, contamination, deviations
from reports.tables.scene_facts import fact_sections
from reports.tables.verdict import PAIRS_MEANING, needs_longer_training, no_ranks
from results.errors import StoreError
from results.metrics import RANKING_METRIC
from results.runs.run import Run
from results.runs.standings import RankingOptions
from results.signature import format_signature
from results.store.store import Store

MARKER = ".captionbench-report"  # makes a folder a report, and lists the files that were written into it
PAGE_SCRIPTS = ("gallery_words.js", "gallery_viewer.js", "gallery_choice.js", "gallery.js", "runs.js", "compare.js")
_PAGES = {
    "index.html": "Leaderboard",
    "nocaps.html": "Domains",
    "facts.html": "What they get wrong",
    "costs.html": "Costs",
    "trade-offs.html": "Trade-offs",
    "curves.html": "Curves",
    "gallery.html": "Gallery",
    "models.html": "Models",
    "method.html": "Method",
}
"""The pages of the menu, by file; pages without content are left out of a report."""
_ABSENT = {
    "costs.html": "Costs: no finished run has any. Rows of given captions have no costs.",
    "trade-offs.html": "Trade-offs: fewer than two models have a score and a cost.",
    "curves.html": "Curves: no run has recorded an epoch of training.",
    "gallery.html": "Gallery: the database has no captions of finished runs. Copies by bench db publish have none.",
}
"""The reasons for pages that are left out of a report."""


def write_report(
    store: Store,
    out_dir: Path,
    metric: str = RANKING_METRIC,
    options: RankingOptions = RankingOptions(),
    pictures: PictureSource = RECORDED,
) -> Path:
    """Write the report of everything in the store; the folder is replaced as a whole when it is complete."""
    contents = Contents.read(store, metric, options)
    with replaced(out_dir) as folder:
        for name in ("gallery", "models", "runs"):
            (folder / name).mkdir()
        for name in (*SCRIPTS, *PAGE_SCRIPTS):
            (folder / name).write_text(asset(name), encoding="utf-8")
        (folder / "style.css").write_text(style(), encoding="utf-8")
        _write_pages(store, contents, folder, pictures)
    return out_dir / "index.html"


@contextmanager
def replaced(folder: Path) -> Iterator[Path]:
    """An empty folder to write into, which replaces `folder` at the end of the block.

    If the block raises, `folder` stays unchanged. Only a report or an empty folder is replaced; other files in a report
    are kept.
    """
    folder = folder.absolute()
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise StoreError(f"{folder} is not a folder", "choose another with --out DIR")
    if folder.is_dir() and not (folder / MARKER).is_file() and any(folder.iterdir()):
        raise StoreError(
            f"{folder} holds files that are not a report; writing one would delete them",
            "choose a new or empty folder with --out DIR",
        )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(folder)
        work = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise _unwritable(folder, error) from error
    try:
        with _locked(work):  # before there is anything in it: see `_remove_abandoned`
            new = work / "new"
            new.mkdir()
            yield new
            with _locked(folder.parent):  # only one report is put in place at a time
                written = sorted(_files(new))
                _keep_foreign(folder, new)
                lines = ["Written by bench report, which replaces this folder, but files of other names.", *written]
                (new / MARKER).write_text("\n".join(lines) + "\n", encoding="utf-8")
                _swap(new, folder, work / "old")
    except OSError as error:
        raise _unwritable(folder, error) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


@contextmanager
def _locked(folder: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold the lock of a folder; without `wait`, OSError if another process holds it."""
    if fcntl is None:
        if not wait:
            raise OSError("this system cannot tell whether another process holds the folder")
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


class _PageWriter:
    """Renders templates into a report's folder.

    Args:
        pages: the files that the report will have, which its menu links to.
    """

    def __init__(self, folder: Path, pages: Collection[str]) -> None:
        self.folder = folder
        self._environment = template_environment([(file, name) for file, name in _PAGES.items() if file in pages])

    def render(self, file: str, template: str, page: str | None = None, **content: Any) -> str:
        """The text of a file; `page` is its entry in the menu, by default the file itself."""
        context = {"page": page or file, "root": "../" * file.count("/"), "inline_style": False}
        return self._environment.get_template(template).render(context | content)

    def write(self, file: str, template: str, page: str | None = None, **content: Any) -> None:
        """Render a file and write it."""
        self.write_text(file, self.render(file, template, page, **content))

    def write_text(self, file: str, text: str) -> None:
        """Write text to a file."""
        (self.folder / file).write_text(text, encoding="utf-8")


def _write_pages(store: Store, contents: Contents, folder: Path, pictures: PictureSource) -> None:
    """Write all pages of a report, and the data that their scripts read."""
    colour = colours(contents.runs.values())
    labels = row_labels(contents)
    maps = stored_maps(store, contents.groups, labels)
    mapped = {key: captions.keys() for key, (captions, _) in maps.items()}
    galleries = gallery_pages(store, contents, labels, mapped, folder, pictures)
    attention = attention_pages(maps, galleries)
    examples = {key: examples_by_run(page) for key, page in galleries.items()}
    models = model_pages(contents, examples)
    facts = fact_sections(store, contents, {key: page.file for key, page in galleries.items() if page.data})
    filled_galleries = [page for page in galleries.values() if page.data]
    sections = {
        "nocaps.html": domain_sections(contents, {key: page.domains for key, page in galleries.items()}),
        "costs.html": cost_sections(contents),
        "trade-offs.html": trade_off_sections(contents, colour),
        "curves.html": curve_sections(contents, colour),
    }
    pages = {"index.html", "models.html", "method.html"}
    pages |= {file for file, page_sections in sections.items() if page_sections}
    if facts:
        pages.add("facts.html")
    if filled_galleries:
        pages.add("gallery.html")
    writer = _PageWriter(folder, pages)

    _write_leaderboards(writer, contents)
    if facts:
        writer.write("facts.html", "facts.html.j2", sections=facts)
    for file, page_sections in sections.items():
        if page_sections:
            writer.write(file, "sections.html.j2", sections=page_sections)
    for gallery in filled_galleries:
        content = {"gallery": gallery, "galleries": filled_galleries, "cut": LONG_CAPTION}
        writer.write(gallery.file, "gallery.html.j2", "gallery.html", **content, pieces=pieces, stems=stems)
        for file, text in gallery.data.items():
            writer.write_text(file, text)
    for page in attention:
        writer.write(page.file, "attention.html.j2", "gallery.html", attention=page, others=attention)
        writer.write_text("attention.js", asset("attention.js"))
        for file, text in page.scripts.items():
            writer.write_text(file, text)
    writer.write("models.html", "models.html.j2", models=models)
    for model in models:
        writer.write(model.file, "model.html.j2", "models.html", model=model, has_costs="costs.html" in pages)
    absent = [reason for file, reason in _ABSENT.items() if file not in pages]
    writer.write("method.html", "method.html.j2", method=method(contents), absent=absent)
    _write_runs(writer, contents, colour, examples)


def _write_leaderboards(writer: _PageWriter, contents: Contents) -> None:
    """Write a page for each leaderboard; the first is the report's index."""
    all_boards = boards(contents)
    common: dict[str, Any] = {
        "boards": all_boards,
        "menus": menus(contents.conditions),
        "pairs_meaning": PAIRS_MEANING,
        "unranked": no_ranks(contents.groups),
        "longer": needs_longer_training(contents.groups),
        "summary": summary(contents),
    }
    unfinished: dict[str, Any] = {
        "failures": contents.failures,
        "skipped": [(dataset.name, dataset.skipped) for dataset in contents.datasets if dataset.skipped],
    }
    if not all_boards:
        writer.write("index.html", "leaderboard.html.j2", **common, **unfinished, board=None, inline_style=True)
    for index, board in enumerate(all_boards):
        content = {
            **common,
            **(unfinished if index == 0 else {"failures": (), "skipped": ()}),
            "board": board,
            "facets": facets(board),
            "scale": scale(board),
            "inline_style": index == 0,
        }
        writer.write(board.file, "leaderboard.html.j2", "index.html", **content)


def _write_runs(
    writer: _PageWriter,
    contents: Contents,
    colour: Mapping[str, int],
    examples: Mapping[tuple[str, str], ExamplesByRun],
) -> None:
    """Write the pages of runs, packed into a script a model, and the page that shows one of them."""
    pages: dict[str, dict[str, str]] = {}
    for run in contents.runs.values():
        content = _run_content(run, colour, examples)
        text = writer.render(run_page(run.key), "run.html.j2", "models.html", **content)
        pages.setdefault(runs_file(run.model), {})[run.key] = text
    for file, by_key in pages.items():
        writer.write_text(file, f'captionbench.runs("{packed(by_key)}");\n')
    writer.write("run.html", "run_shell.html.j2", files={file: list(by_key) for file, by_key in pages.items()})


def _run_content(
    run: Run, colour: Mapping[str, int], examples: Mapping[tuple[str, str], ExamplesByRun]
) -> dict[str, Any]:
    splits = run.scores.splits
    seen_data = {split: contamination(run.pretraining, run.dataset, split) for split in splits}
    return {
        "run": run,
        "card": card(run),
        "deviations": deviations(run.config),
        "contamination": {split: overlap for split, overlap in seen_data.items() if overlap},
        "signature": format_signature(run.signature, RANKING_METRIC),
        "scores": [(split, score_table(run.scores.by_domain(split))) for split in splits],
        "examples": {split: examples.get((run.fingerprint, split), {}).get(run.key, ()) for split in splits},
        "costs": cost_list(run.costs),
        "plots": curve_plots([[run]], colour),
        "ended": training_end(run),
        "stage_speeds": run.stage_speeds(),
        "environment": flat(run.environment),
        "config": json.dumps(run.config, indent=2, ensure_ascii=False),
    }


def _remove_abandoned(folder: Path) -> None:
    """Remove temporary folders of killed commands that wrote `folder`; those of running commands are locked.

    If a command was killed between moving the old report away and replacing it, the old report is put back.
    """
    for work in folder.parent.glob(f".{glob.escape(folder.name)}-*"):
        if not (work / "new").is_dir() and not (work / "old").is_dir():
            continue
        with suppress(OSError), _locked(work, wait=False):
            if (work / "old").is_dir() and not folder.exists():
                (work / "old").rename(folder)
            shutil.rmtree(work, ignore_errors=True)


def _files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_symlink() or path.is_file()}


def _keep_foreign(folder: Path, new: Path) -> None:
    """Copy the files in `folder` that the old report did not write."""
    if not (folder / MARKER).is_file():
        return
    written = (folder / MARKER).read_text(encoding="utf-8").splitlines()
    for name in sorted(_files(folder) - {MARKER, *written} - _files(new)):
        (new / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(folder / name, new / name, follow_symlinks=False)


def _swap(new: Path, folder: Path, old: Path) -> None:
    new.chmod(0o755)
    if not folder.exists():
        new.replace(folder)
        return
    folder.replace(old)
    try:
        new.replace(folder)
    except OSError:
        old.replace(folder)
        raise


def _unwritable(folder: Path, error: OSError) -> StoreError:
    return StoreError(f"cannot write the report {folder}: {error.strerror or error}", "choose another with --out DIR")
