"""`bench evaluate --report`: files of captions as rows of one table, with tests, and a report that is a workspace."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from harness.cli.inputs import doing
from harness.utils.errors import BenchError

if TYPE_CHECKING:
    from harness.benchmark.plan import Benchmark
    from harness.metrics.more.measure import MoreSettings
    from harness.utils.progress import Reporter


def compare_systems(
    predictions: Sequence[Path],
    references: Path,
    images: Path | None,
    report: Path | None,
    cards: Path | None,
    more: MoreSettings | None,
    words: Mapping[str, Any],
    *,
    allow_subset: bool,
    limit: int | None,
) -> None:
    """Score files of captions as rows, print who is better than whom, and write a report that is a workspace, too.

    `words` are `tokenizer` and `language` of the experiment.
    """
    from tempfile import TemporaryDirectory

    with doing("Loading torch"):
        from harness.benchmark.benchmark import run_benchmark
        from harness.benchmark.plan import Benchmark
    from harness.config.experiment import DataChoice, Experiment
    from harness.config.load import load_preset
    from harness.config.model_patterns import CAPTIONS
    from harness.utils.progress import Reporter
    from harness.utils.workspace import Workspace
    from reports.html.report import write_report
    from reports.text.terminal import print_leaderboard
    from results.store.store import Store

    results = None if report is None else Path(Workspace(report).database)
    if results is not None:
        _refuse_other_runs(results)
    with TemporaryDirectory() as folder, Reporter() as reporter:
        workspace = Workspace(Path(folder))
        experiment = Experiment(
            models=tuple(f"{CAPTIONS}{file}" for file in predictions),
            data=DataChoice(annotations=str(references), images=images, limit=limit),
            cards=cards,
            allow_subset=allow_subset,
            **words,
            workspace=workspace.root,
        )
        benchmark = Benchmark(experiment, load_preset("quick"), workspace, more=more)
        if allow_subset and len(predictions) > 1:
            benchmark = _over_common_images(benchmark, reporter)
        ended, lacking = run_benchmark(benchmark, reporter)
        with Store(workspace.database) as store:
            print_leaderboard(store, reporter.console)
            if report is not None:
                reporter.note(f"report: {write_report(store, report).absolute().as_uri()}")
        if results is not None:
            _copy_database(Path(workspace.database), results)
            reporter.note(f"results: {results}; --workspace {report} names them to bench compare and bench export")
        if "failed" in ended.values() or lacking:
            raise typer.Exit(1)


def _over_common_images(benchmark: Benchmark, reporter: Reporter) -> Benchmark:
    """The benchmark without the images that some file has no caption of, so that all rows share one table."""
    from harness.benchmark.captions import images_without_captions
    from harness.benchmark.context import open_context
    from harness.benchmark.plan import resolve

    resolved = resolve(benchmark, reporter)
    context = open_context(resolved.conditions, benchmark.workspace, reporter, make=False)
    files = [model.captions for model in resolved.models if model.captions is not None]
    left_out = images_without_captions(files, context.data)
    if not left_out:
        return benchmark
    for reason, count in Counter(left_out.values()).items():
        reporter.note(f"left out: {count} image{'' if count == 1 else 's'} with {reason}", style="yellow")
    experiment = benchmark.experiment
    data = experiment.data.model_copy(update={"left_out": left_out})
    return replace(benchmark, experiment=experiment.model_copy(update={"data": data}))


def _refuse_other_runs(database: Path) -> None:
    """BenchError if results that are to be replaced hold more than captions of files, which are scored anew."""
    from results.runs.reading import read_runs
    from results.store.store import Store

    if not database.exists():
        return
    with Store(str(database), read_only=True) as store, store.reading() as connection:
        others = [run.key for run in read_runs(connection) if run.kind != "captions"]
    if others:
        raise BenchError(
            f"--report {database.parent}: its {database.name} holds runs that are not files of captions ({others[0]})",
            "name another folder: --report FOLDER",
        )


def _copy_database(source: Path, target: Path) -> None:
    """Copy a database of SQLite; one that is there is replaced in one transaction."""
    try:
        with closing(sqlite3.connect(source)) as original, closing(sqlite3.connect(target)) as copy:
            original.backup(copy)
    except sqlite3.Error as error:
        raise BenchError(f"{target} cannot be written: {error}", "name another folder: --report FOLDER") from error
