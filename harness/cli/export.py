"""`bench export`: files for other programs to read."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from harness.cli import options
from harness.cli.inputs import doing, open_results
from harness.cli.output import ForceOption, Out, OutputFolder, check_out, deliver, echo, write_errors
from harness.utils.errors import BenchError
from harness.utils.workspace import DEFAULT, Workspace

EXAMPLES = {
    "submission": r"""
bench export submission results.json --server coco --split test2014 \
    --images image_info_test2014.json --out upload
bench export submission m2-s0-1f3a09bc42 --server nocaps \
    --images nocaps_test_image_info.json --out upload
""",
    "leaderboard": r"""
bench export leaderboard
bench export leaderboard --format latex --columns CIDEr-D,place,parameters \
    --out leaderboard.tex
bench export leaderboard --format csv --db postgresql://me@server/captions
""",
    "figures": """
bench export figures --out figures
bench export figures --db baseline.sqlite --out paper/figures
""",
}


def submission(
    context: typer.Context,
    predictions: Annotated[
        str, typer.Argument(help="A file of captions, or the key of a stored run.", metavar="FILE|RUN")
    ],
    server: Annotated[Literal["coco", "nocaps"], typer.Option(help="The server whose format and rules hold.")],
    images: Annotated[Path, typer.Option(help="The server's own list of its images; each needs a caption.")],
    out: Annotated[Path, Out(help="Folder to write to.")],
    split: Annotated[
        str | None, typer.Option(help="coco: val2014 or test2014; nocaps: val or test.", show_default="the test split")
    ] = None,
    name: Annotated[str, typer.Option(help="Name of the system, for the file's name.")] = "captionbench",
    id_field: Annotated[
        str | None, typer.Option(metavar="NAME", help="The field that names the images, where several could.")
    ] = None,
    by_position: Annotated[
        bool, typer.Option("--by-position", help="Take captions that name no image in the order of --images.")
    ] = False,
    caption_field: Annotated[
        str | None, typer.Option(metavar="NAME", help="The field that holds the captions, where several could.")
    ] = None,
    format_name: Annotated[
        str | None,
        typer.Option("--format", metavar="NAME", help="The format of the captions, if the content does not tell it."),
    ] = None,
    force: ForceOption = False,
    workspace: options.WorkspaceOption = DEFAULT,
    db: options.DatabaseOption = None,
) -> None:
    """Write the file that COCO's or nocaps's evaluation server takes, of a file's or a stored run's captions."""
    from harness.data.formats.match import MatchOptions
    from harness.data.formats.predictions import read_predictions
    from harness.data.formats.references import read_image_files
    from harness.metrics.submission import SPLITS, read_image_list, run_predictions, write_submission

    folder = OutputFolder(out, force=force, inputs=[predictions, images])
    wanted = read_image_list(images, server)
    if Path(predictions).is_file():
        why = f"{predictions} is a file, and no run of a benchmark"
        options.refuse_typed(context, ("workspace", "db"), why, "leave these out")
        match = MatchOptions(id_field, by_position, caption_field, format_name)
        captions = read_predictions(Path(predictions), wanted, read_image_files(images), options=match)
    else:
        from results.errors import StoreError
        from results.store.store import Store

        fields = ("id_field", "by_position", "caption_field", "format_name")
        options.refuse_typed(context, fields, f"{predictions} is no file", "leave these out")
        try:
            with Store(Workspace(workspace, db).database, read_only=True) as store:
                captions = run_predictions(store, predictions, images)
        except StoreError as error:
            hint = (
                f"give a file of captions or a run's key; {error.hint or 'the folder runs of the workspace has them'}"
            )
            what = f"{predictions} is neither a file nor a run that can be exported"
            raise BenchError(f"{what}: {error}", hint) from error
    with write_errors(out):
        split = split or [*SPLITS[server]][-1]
        written = write_submission(
            captions,
            images,
            out,
            server=server,
            split=split,
            algorithm=name,
            check=folder.check,
        )
    for path in written:
        folder.record(path.name)
        echo(path)
    if server == "coco":
        last = "Next: the same for the other split; the archive to upload is written once both are there"
        joined = f"The other split's captions were in {out} before: each system needs a --name or an --out of its own"
        echo(last if len(written) == 1 else joined)


def leaderboard(
    workspace: options.WorkspaceOption = DEFAULT,
    db: options.DatabaseOption = None,
    format: Annotated[
        Literal["markdown", "csv", "latex", "json"],
        typer.Option("--format", "-f", help="latex needs the packages booktabs and threeparttable."),
    ] = "markdown",
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES", help="For markdown and latex: names of columns, such as CIDEr-D,place,parameters, or all."
        ),
    ] = None,
    metric: options.RankingMetricOption = "CIDEr-D",
    margin: options.MarginOption = None,
    place_unfinished: options.PlaceUnfinishedOption = False,
    same_machine: options.SameMachineOption = False,
    out: Annotated[
        Path | None,
        Out(help="File to write; without it, print."),
    ] = None,
    force: ForceOption = False,
) -> None:
    """Write the leaderboard's tables: markdown and latex to paste, csv and json for other programs.

    csv is `results.open(WORKSPACE).leaderboard()`: scores times 100, with units in the names of columns. json also has
    every reason and condition; its scores are fractions.
    """
    if columns is not None and format in {"csv", "json"}:
        why = f"--columns is not used by --format {format}, which has every column"
        raise BenchError(why, "leave it out, or write latex")
    from reports.tables.contents import Contents
    from reports.text import markup
    from results.frames import Results
    from results.runs.standings import RankingOptions

    check_out(out, force=force, inputs=[Workspace(workspace, db).database])
    ranking = RankingOptions(margin, place_unfinished, same_machine)
    names = None if columns is None else [name.strip() for name in columns.split(",")]
    with open_results(workspace, db) as store, doing("Reading the results"):
        if format == "csv":
            text = markup.as_csv(Results(store).leaderboard(metric=metric, options=ranking))
        elif format == "json":
            text = markup.as_json(Contents.read(store, metric, ranking))
        else:
            write = markup.markdown if format == "markdown" else markup.latex
            text = write(Contents.read(store, metric, ranking), names)
    deliver(text, out)
    if out is not None:
        echo(out)


def figures(
    out: Annotated[Path, Out(help="Folder to write to; files of other names stay.")],
    force: ForceOption = False,
    workspace: options.WorkspaceOption = DEFAULT,
    db: options.DatabaseOption = None,
) -> None:
    """Write the report's trade-offs and learning curves, one SVG file a plot."""
    from reports.html.report import figures as drawn_figures

    with open_results(workspace, db) as store, doing("Drawing the figures"):
        drawn = drawn_figures(store)
    if not drawn:
        raise BenchError("there is nothing to draw yet: no training has epochs", "type: bench run --models all")
    folder = OutputFolder(out, force=force)
    for name in drawn:
        folder.check(name)
    for name, svg in drawn.items():
        deliver(svg, out / name)
        folder.record(name)
        echo(out / name)


COMMANDS = {"submission": submission, "leaderboard": leaderboard, "figures": figures}
