"""`bench report`: write the HTML report of a workspace, or print its leaderboard."""

import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from harness.cli import options
from harness.cli.inputs import doing, open_results, warn
from harness.cli.output import ForceOption, Out, check_folder, check_out, deliver, echo, write_errors
from harness.utils.atomic import replacing
from harness.utils.errors import BenchError
from harness.utils.workspace import DEFAULT, Workspace
from results.files import without_collection

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
            help="Folder of the pictures. Of a file given by --db no others are shown.",
        ),
    ] = None,
    out: Annotated[
        Path | None, Out(help="Folder to write, in which files of other names stay; or a file, of the next two.")
    ] = None,
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
    from rich.console import Console

    from results.runs.standings import RankingOptions

    if terminal and out is not None:
        raise BenchError("--terminal writes nothing to --out", "leave one of the two out")
    if terminal and show:
        raise BenchError("--terminal writes no report that --open could show", "leave one of the two out")
    if [terminal, as_file, as_zip].count(True) > 1:
        raise BenchError("--single-file, --zip and --terminal exclude each other", "leave all but one out")
    if force and not as_file and not as_zip:
        raise BenchError("--force is for --single-file and --zip: a report's folder is replaced anyway", "leave it out")
    if terminal and images is not None:
        raise BenchError("--terminal shows no pictures of --images", "leave one of the two out")
    ranking = RankingOptions(margin, rank_unconverged, same_machine)
    is_one_file = as_file or as_zip
    folder = out or Workspace(workspace).report
    file = out or folder.with_suffix(".zip" if as_zip else ".html")
    if is_one_file:
        check_out(file, force=force or out is None, inputs=[db])
    elif not terminal:
        check_folder(folder, inputs=[db])
    if not terminal and images is not None and not images.is_dir():
        raise BenchError(f"--images {images}: there is no such folder", "name the folder of the pictures")
    with without_collection(), open_results(workspace, db) as store:
        if terminal:
            with doing("Reading the results"):
                from reports.text.terminal import print_ablations, print_leaderboard

                tables = Console(highlight=False)
                with tables.capture() as captured:
                    print_leaderboard(store, tables, metric, ranking)
                    print_ablations(store, tables)
            sys.stdout.write(captured.get())
            return
        with doing("Writing the report"):
            from reports.html.gallery import PictureSource
            from reports.html.report import write_report

            is_file = db is not None and "://" not in db  # which somebody else may have written
            pictures = PictureSource(images, recorded=not is_file)
            if is_one_file:
                with tempfile.TemporaryDirectory() as temporary:
                    written = Path(temporary) / "report"
                    write_report(store, written, metric, ranking, pictures)
                    _write_file(written, file, as_zip=as_zip)
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


def _write_file(folder: Path, file: Path, *, as_zip: bool) -> None:
    """A written report as one file, which is replaced once it is complete."""
    from reports.html.single_file import single_file, write_zip

    if not as_zip:
        deliver(single_file(folder), file)
        return
    with write_errors(file), replacing(file) as temporary:
        write_zip(folder, temporary, file.stem)
