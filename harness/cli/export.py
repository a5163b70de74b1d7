"""`bench export`: tables and figures for papers, files for other programs, and runs for other machines."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from harness.cli import options
from harness.cli.completion import complete_keys
from harness.cli.inputs import doing, open_results
from harness.cli.output import ForceOption, Out, OutputFolder, check_out, deliver, echo, write_errors
from harness.config.model_patterns import match_stored, split_patterns
from harness.utils.atomic import replacing
from harness.utils.errors import BenchError
from harness.utils.files import shortened
from harness.utils.workspace import DEFAULT, Workspace
from results.errors import install_extra

if TYPE_CHECKING:
    from reports.tables.contents import Contents
    from reports.tables.selection import NumberedTable
    from results.runs.standings import RankingOptions
    from results.store.store import Store

EXAMPLES = {
    "submission": r"""
bench export submission results.json --server coco --split test2014 \
    --images image_info_test2014.json --out upload
bench export submission m2-s0-1f3a09bc42 --server nocaps \
    --images nocaps_test_image_info.json --out upload
""",
    "leaderboard": r"""
bench export leaderboard
bench export leaderboard --models 'expansionnet*,updown,human' --split test \
    --metrics CIDEr-D,BLEU-4,parameters --format latex --out table.tex
bench export leaderboard --format csv --table all --out leaderboard.csv
bench export leaderboard --format json --db postgresql://me@server/captions
""",
    "run": """
bench export run updown-s0-0123456789
bench run updown-s0-0123456789.zip --workspace elsewhere
""",
    "figures": r"""
bench export figures --out figures
bench export figures --models 'expansionnet*,updown' --split test --format svg \
    --rename updown=Ours --out paper/figures
""",
}

_TABLES_SHOWN = 9
StoredModelsOption = Annotated[
    str, typer.Option("--models", metavar="NAMES", help="Rows to show: names or globs of stored models, with commas.")
]
SplitOption = Annotated[str | None, typer.Option("--split", metavar="SPLIT", help="Only tables of this split.")]
TableOption = Annotated[
    str | None,
    typer.Option("--table", metavar="NUMBER", help="Which table, or all.", show_default="the one of most models"),
]
RenameOption = Annotated[
    list[str] | None,
    typer.Option("--rename", metavar="MODEL=NAME", help="A model's name in the output; may be repeated."),
]


def submission(
    context: typer.Context,
    predictions: Annotated[
        str,
        typer.Argument(
            help="A file of captions, or the key of a stored run.", metavar="FILE|RUN", autocompletion=complete_keys
        ),
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
    image_list = read_image_list(images, server)
    if Path(predictions).is_file():
        why = f"{predictions} is a file, and no run of a benchmark"
        options.refuse_typed(context, ("workspace", "db"), why, "leave these out")
        match = MatchOptions(id_field, by_position, caption_field, format_name)
        captions = read_predictions(Path(predictions), image_list, read_image_files(images), options=match)
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
            problem = f"{predictions} is neither a file nor a run that can be exported"
            raise BenchError(f"{problem}: {error}", hint) from error
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
        if len(written) == 1:
            echo("Next: the same for the other split; the archive to upload is written once both are there")
        else:
            echo(f"The other split's captions were in {out} before: each system needs a --name or an --out of its own")


def leaderboard(
    workspace: options.WorkspaceOption = DEFAULT,
    db: options.DatabaseOption = None,
    format: Annotated[
        Literal["markdown", "csv", "latex", "json"],
        typer.Option("--format", "-f", help="latex needs the package booktabs."),
    ] = "markdown",
    models: StoredModelsOption = "all",
    split: SplitOption = None,
    table: TableOption = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES", help="Names of columns, such as CIDEr-D,rank,parameters, or all; json always has all."
        ),
    ] = None,
    rename: RenameOption = None,
    metric: options.RankingMetricOption = "CIDEr-D",
    margin: options.MarginOption = None,
    rank_unconverged: options.RankUnconvergedOption = False,
    same_machine: options.SameMachineOption = False,
    out: Annotated[
        Path | None,
        Out(help="File to write; without it, print."),
    ] = None,
    force: ForceOption = False,
) -> None:
    """Write a table of the leaderboard: the one of most models, or the one that --split or --table chooses.

    latex is a table of a paper: display names, the best bold, the second underlined. csv has one row a model, and
    json every reason and condition. Scores are times 100, and fractions in json.
    """
    if metrics is not None and format == "json":
        raise BenchError("--metrics is not used by --format json, which has every column", "leave it out")
    if rename and format in {"markdown", "json"}:
        raise BenchError(
            f"--rename is not used by --format {format}, which has the models' own names",
            "leave it out, or write latex or csv",
        )
    from reports.tables.selection import with_tables
    from results.runs.standings import RankingOptions

    check_out(out, force=force, inputs=[Workspace(workspace, db).database])
    ranking = RankingOptions(margin, rank_unconverged, same_machine)
    names = None if metrics is None else split_patterns(metrics)
    renamed = _renamed(rename)
    with open_results(workspace, db) as store, doing("Reading the results"):
        contents, tables, other_tables = _chosen_tables(store, metric, ranking, models, split, table)
        _refuse_unknown(renamed, tables)
        selection = with_tables(contents, tables)
        if format == "csv":
            from reports.text.csv_rows import as_csv

            text = as_csv(contents, tables, names, renamed)
        elif format == "latex":
            from reports.text.latex import latex

            text = latex(selection, names, renamed)
        else:
            from reports.text import markup

            text = markup.as_json(selection) if format == "json" else markup.markdown(selection, names)
    for line in other_tables:
        echo(line, err=True)
    deliver(text, out)
    if out is not None:
        echo(out)


def _chosen_tables(
    store: Store, metric: str, ranking: RankingOptions, models: str, split: str | None, table: str | None
) -> tuple[Contents, list[NumberedTable], list[str]]:
    """The store's contents, the tables that the options choose, and lines that name the others if several match."""
    from reports.tables.contents import Contents
    from reports.tables.selection import choose_tables, matching_tables, model_names

    contents = Contents.read(store, metric, ranking)
    if not contents.groups:
        raise BenchError("no run has finished yet", "make some with: bench run --models all")
    rows = match_stored(split_patterns(models), model_names(contents))
    tables = matching_tables(contents, models=rows, split=split)
    if not tables:
        raise BenchError(f"--models {models}: no such row on the split {split}", "name others, or leave out --split")
    chosen_tables = choose_tables(tables, table)
    lines = []
    if table is None and len(tables) > 1:
        lines.append(f"table {tables[0].number}: {tables[0].title(contents)}")
        lines.append("others, by their number, or --table all:")
        for candidate in tables[1 : 1 + _TABLES_SHOWN]:
            lines.append(f"  --table {candidate.number}  {candidate.title(contents)}")
        if len(tables) > 1 + _TABLES_SHOWN:
            lines.append(f"  and {len(tables) - 1 - _TABLES_SHOWN} more")
    return contents, chosen_tables, lines


def _refuse_unknown(renamed: Collection[str], tables: Sequence[NumberedTable]) -> None:
    """BenchError where --rename names a model that no table has."""
    rows = {row.model for table in tables for row in (*table.group.rows, *table.group.references)}
    for model in renamed:
        if model not in rows:
            near = difflib.get_close_matches(model, rows, n=2) or sorted(rows)[:5]
            raise BenchError(f"--rename {shortened(model)}: no row has this name", f"for example {', '.join(near)}")


def _renamed(texts: list[str] | None) -> dict[str, str]:
    """The names of `--rename MODEL=NAME`."""
    renamed = {}
    for text in texts or ():
        model, equals, name = text.partition("=")
        if not equals or not model or not name:
            raise BenchError(f"--rename {shortened(text)!r} is not MODEL=NAME", "for example --rename my_model=Ours")
        renamed[model] = name
    return renamed


def figures(
    out: Annotated[Path, Out(help="Folder to write to; files of other names stay.")],
    force: ForceOption = False,
    workspace: options.WorkspaceOption = DEFAULT,
    db: options.DatabaseOption = None,
    format: Annotated[Literal["pdf", "svg", "png"], typer.Option("--format", "-f", help="Of the files.")] = "pdf",
    models: StoredModelsOption = "all",
    split: SplitOption = None,
    table: TableOption = None,
    rename: RenameOption = None,
    width: Annotated[
        float, typer.Option(min=2.0, max=20.0, metavar="INCHES", help="3.3 is a column of a two-column paper.")
    ] = 3.3,
    metric: options.RankingMetricOption = "CIDEr-D",
    margin: options.MarginOption = None,
    rank_unconverged: options.RankUnconvergedOption = False,
    same_machine: options.SameMachineOption = False,
) -> None:
    """Write the figures of a table: scores with intervals, trade-offs, learning curves, and which pairs differ.

    The table is chosen as by `bench export leaderboard`. Needs matplotlib: the extra figures.
    """
    if find_spec("matplotlib") is None:
        raise BenchError("figures need matplotlib, which is not installed", install_extra("figures"))
    from results.runs.standings import RankingOptions

    folder = OutputFolder(out, force=force)
    renamed = _renamed(rename)
    with open_results(workspace, db) as store, doing("Drawing the figures"):
        ranking = RankingOptions(margin, rank_unconverged, same_machine)
        contents, tables, other_tables = _chosen_tables(store, metric, ranking, models, split, table)
        if len(tables) > 1:
            raise BenchError("--table all: figures are of one table", f"name one: --table {tables[0].number}")
        _refuse_unknown(renamed, tables)
        from reports.figures.draw import as_bytes, draw_figures

        figures = draw_figures(contents, tables[0].group, renamed, width)
        files = {f"{name}.{format}": as_bytes(figure, format) for name, figure in figures.drawn.items()}
    for remark in (*other_tables, *figures.remarks):
        echo(remark, err=True)
    if not files:
        raise BenchError("there is nothing to draw", "make results with: bench run --models all")
    for name in files:
        folder.check(name)
    for name, content in files.items():
        with write_errors(out), replacing(out / name) as temporary:
            temporary.write_bytes(content)
        folder.record(name)
        echo(out / name)


def run(
    key: Annotated[str, typer.Argument(metavar="KEY", help="A finished run, or a model that has one.")],
    workspace: options.WorkspaceOption = DEFAULT,
    db: options.DatabaseOption = None,
    out: Annotated[Path | None, Out(help="The zip to write.", show_default="KEY.zip")] = None,
    force: ForceOption = False,
) -> None:
    """Write one run as a zip: configuration, versions, weights, captions, scores and plug-in.

    `bench run KEY.zip` executes it, on another machine too.
    """
    from results.runs.reading import run_keys

    with open_results(workspace, db) as store:
        keys = run_keys(store, key)
        if len(keys) > 1:
            hint = f"name one: bench export run {keys[0]}"
            raise BenchError(f"{key} has {len(keys)} runs: {', '.join(keys[:4])}", hint)
        target = out or Path(f"{keys[0]}.zip")
        check_out(target, force=force, inputs=[Workspace(workspace, db).database])
        with doing("Writing the run"), write_errors(target):
            from harness.benchmark.export_run import export_run

            missing_parts = export_run(store, keys[0], Workspace(workspace, db), target)
    for sentence in missing_parts:
        echo(sentence, err=True)
    echo(target)


COMMANDS = {"submission": submission, "leaderboard": leaderboard, "figures": figures, "run": run}
