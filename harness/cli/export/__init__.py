"""`bench export`: files for other programs to read."""

from __future__ import annotations

import typer

from harness.cli.export import figures, leaderboard, submission


def register(app: typer.Typer) -> None:
    """Add `bench export` and its subcommands."""
    group = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown")
    group.callback()(_group)
    for command in (submission, leaderboard, figures):
        command.register(group)
    app.add_typer(group, name="export", help="Write files for other programs.")


def _group() -> None:
    """Write files for other programs to read."""
