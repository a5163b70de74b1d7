"""`bench prefetch`: fetch what some metrics and models need and cannot be part of the package."""

from __future__ import annotations

import typer

from harness.cli.prefetch import model, spice

_EXAMPLES = """**Examples**

    bench prefetch spice

    bench prefetch spice --from stanford-corenlp-full-2015-12-09.zip

    bench prefetch model git/pretrained
"""


def register(app: typer.Typer) -> None:
    """Add `bench prefetch` and its subcommands."""
    group = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown")
    group.callback()(_group)
    group.command("spice", epilog=_EXAMPLES)(spice.spice)
    group.command("model", epilog=_EXAMPLES)(model.model)
    app.add_typer(group, name="prefetch", help="Fetch what some metrics and models need.")


def _group() -> None:
    """Fetch what some metrics and models need and the package cannot hold."""
