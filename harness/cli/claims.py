"""`bench claims`: claims of papers, judged by stored runs."""

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from harness.cli.inputs import open_results
from harness.cli.options import DatabaseOption, MarginOption, PlaceUnfinishedOption, SameMachineOption, WorkspaceOption
from harness.cli.output import ForceOption, Out, check_out, deliver, echo
from harness.utils.workspace import DEFAULT

EXAMPLES = """
bench claims
bench claims my_claims.yaml --workspace runs/coco
bench claims papers --format markdown --out claims.md
"""


def claims(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A YAML file of claims, or the name of one that ships.")
    ] = "papers",
    workspace: WorkspaceOption = DEFAULT,
    db: DatabaseOption = None,
    margin: MarginOption = None,
    place_unfinished: PlaceUnfinishedOption = False,
    same_machine: SameMachineOption = False,
    format: Annotated[
        Literal["text", "markdown"], typer.Option("--format", help="How the claims are written.")
    ] = "text",
    out: Annotated[Path | None, Out(help="Write them to this file.")] = None,
    force: ForceOption = False,
) -> None:
    """Say which claims of papers the stored runs support or contradict, and which they cannot tell.

    A claim is two sets of runs, a metric and a direction. The sets are compared over seeds and images, where they
    differ in nothing but what is claimed about. For runs that are missing, the command prints what to type.
    """
    check_out(out, force=force)
    from harness.config.load import load_claims
    from reports.tables.fields import FIELDS
    from reports.text.claims import markdown, print_claims
    from results.comparison.claims import check_names, judge
    from results.runs.standings import Judging

    claimed = load_claims(file)
    with open_results(workspace, db) as store:
        check_names(store, claimed, FIELDS)
        rows = judge(store, claimed, Judging(margin, place_unfinished, same_machine))
    deliver(markdown(rows) if format == "markdown" else partial(print_claims, rows), out)
    if out is not None:
        echo(out)
