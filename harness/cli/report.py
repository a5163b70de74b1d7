"""`bench report`: write the HTML report of a workspace, or print its leaderboard."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli import options
from harness.cli.inputs import doing, open_results, warn
from harness.cli.output import ForceOption, Out, check_folder, check_out, deliver, echo, write_errors
from harness.utils.atomic import replacing
from harness.utils.errors import BenchError
from harness.utils.workspace import DEFAULT, Workspace
from results.files import without_collection

if TYPE_CHECKING:
    from results.runs.standings import RankingOptions
    from results.store.store import Store

EXAMPLES = """
bench report
bench report --workspace runs/flickr8k --out public/flickr8k
bench report --open
bench report --single-file --out board.html
bench report --terminal
"""


def report(
    workspace: options.WorkspaceOption = DEFAULT,
    db: options.DatabaseOption = None,
    images: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder of the images; needed where --db names a file.",
        ),
    ] = None,
    out: Annotated[Path | None, Out(help="Folder to write into; with --single-file or --zip, the file.")] = None,
    as_file: Annotated[
        bool, typer.Option("--single-file", help="Write one HTML file with every page and picture inside, to send.")
    ] = False,
    as_zip: Annotated[bool, typer.Option("--zip", help="Write the folder as one zip file.")] = False,
    force: ForceOption = False,
    metric: options.RankingMetricOption = "CIDEr-D",
    margin: options.MarginOption = None,
    rank_unconverged: options.RankUnconvergedOption = False,
    same_machine: options.SameMachineOption = False,
    terminal: Annotated[bool, typer.Option("--terminal", help="Print the leaderboard here; write nothing.")] = False,
    show: Annotated[bool, typer.Option("--open", help="Open the report in the browser.")] = False,
) -> None:
    """Write one HTML folder: leaderboard, domains, costs, trade-offs, curves, gallery, model and run pages, method.

    It opens from disk, without a network. Without --out it goes to the workspace: `report`, `report.html` or
    `report.zip`.
    """
    from results.runs.standings import RankingOptions

    _check_options(out, images, as_file=as_file, as_zip=as_zip, force=force, terminal=terminal, show=show)
    ranking = RankingOptions(margin, rank_unconverged, same_machine)
    if terminal:
        with without_collection(), open_results(workspace, db) as store:
            _print_leaderboard(store, metric, ranking)
        return

    is_one_file = as_file or as_zip
    folder = out or Workspace(workspace).report
    file = out or folder.with_suffix(".zip" if as_zip else ".html")
    if is_one_file:
        check_out(file, force=force or out is None, inputs=[db])
    else:
        check_folder(folder, inputs=[db])
    if images is not None and not images.is_dir():
        raise BenchError(f"--images {images} is not a folder", "name the folder of the images")
    with without_collection(), open_results(workspace, db) as store, doing("Writing the report"):
        from reports.html.gallery import PictureSource
        from reports.html.report import write_report

        # Another person may have written a database file: do not open the image folders that it names.
        is_database_file = db is not None and "://" not in db
        pictures = PictureSource(images, recorded=not is_database_file)
        if is_one_file:
            with tempfile.TemporaryDirectory() as temporary:
                report_folder = Path(temporary) / "report"
                write_report(store, report_folder, metric, ranking, pictures)
                _write_file(report_folder, file, as_zip=as_zip)
            index = file
        else:
            index = write_report(store, folder, metric, ranking, pictures)
    echo(index)
    if show:
        import webbrowser

        link = index.absolute().as_uri()
        if not webbrowser.open(link):
            copied = f"the file {file}" if is_one_file else f"the folder {folder}"
            warn("--open: no browser can be started here", f"open {link} in one, or copy {copied}")


def _check_options(
    out: Path | None,
    images: Path | None,
    *,
    as_file: bool,
    as_zip: bool,
    force: bool,
    terminal: bool,
    show: bool,
) -> None:
    """BenchError if options contradict each other."""
    if terminal and out is not None:
        raise BenchError("--terminal prints and writes nothing to --out", "leave one of the two out")
    if terminal and show:
        raise BenchError("--terminal writes no report that --open could show", "leave one of the two out")
    if terminal and images is not None:
        raise BenchError("--terminal shows no images", "leave --terminal or --images out")
    if [terminal, as_file, as_zip].count(True) > 1:
        raise BenchError("--single-file, --zip and --terminal exclude each other", "keep one of them")
    if force and not as_file and not as_zip:
        raise BenchError(
            "--force is for --single-file and --zip: a report's folder is always replaced", "leave --force out"
        )


def _print_leaderboard(store: Store, metric: str, ranking: RankingOptions) -> None:
    """Print the leaderboard and the ablations."""
    from rich.console import Console

    with doing("Reading the results"):
        from reports.text.terminal import print_ablations, print_leaderboard

        console = Console(highlight=False)
        with console.capture() as captured:
            print_leaderboard(store, console, metric, ranking)
            print_ablations(store, console)
    sys.stdout.write(captured.get())


def _write_file(folder: Path, file: Path, *, as_zip: bool) -> None:
    """Write a report's folder as one HTML or zip file; an existing file is replaced once the new one is complete."""
    from reports.html.single_file import single_file, write_zip

    if not as_zip:
        deliver(single_file(folder), file)
        return
    with write_errors(file), replacing(file) as temporary:
        write_zip(folder, temporary, file.stem)
