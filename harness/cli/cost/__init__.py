"""`bench cost`: what captioning and training take of time, memory and energy."""

from __future__ import annotations

import typer

from harness.cli.cost import measure, runs


def register(app: typer.Typer) -> None:
    """Add `bench cost` and its subcommands."""
    group = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown")
    group.callback()(_group)
    for command in (measure, runs):
        command.register(group)
    app.add_typer(group, name="cost", help="Time, memory and energy of captioning, and of training.")


def _group() -> None:
    """What models cost: captioning measured here, training as the stored runs have it. Counts: `bench flops`."""
