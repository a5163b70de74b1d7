"""`bench data`: what there is to train on, and whether its images can be read."""

from __future__ import annotations

import typer

from harness.cli.data import convert, download, features, list_data, nocaps, prepare, verify


def register(app: typer.Typer) -> None:
    """Add `bench data` and its subcommands."""
    group = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown")
    for command in (list_data, download, verify, prepare, convert, nocaps, features):
        command.register(group)
    app.add_typer(group, name="data", help="List, download, convert, verify and prepare data sets.")
