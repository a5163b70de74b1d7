"""`bench models`: which architectures can be compared, and where each comes from."""

from __future__ import annotations

import typer

from harness.cli.models import list_models, show

_EXAMPLES = """
Examples:

  bench models

  bench models list 'expansionnet_v2/*'

  bench models show expansionnet_v2
"""


def register(app: typer.Typer) -> None:
    """Add `bench models` and its subcommands; without one it lists."""
    group = typer.Typer(invoke_without_command=True, rich_markup_mode="markdown")
    group.callback(epilog=_EXAMPLES)(models)
    group.command("list", epilog=_EXAMPLES)(list_models.list_models)
    group.command("show", epilog=_EXAMPLES)(show.show)
    app.add_typer(group, name="models", help="List the architectures, or show one of them.")


def models(context: typer.Context) -> None:
    """List the architectures that can be compared, or show one of them."""
    if context.invoked_subcommand is None:
        list_models.list_models()
