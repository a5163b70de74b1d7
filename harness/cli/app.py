"""The command line's root: registers the subcommands and turns expected errors into one clear message."""

from __future__ import annotations

import importlib
import io
import os
import pkgutil
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

import harness
import harness.cli
from harness.utils.errors import BenchError
from reports.errors import ReportError
from results.errors import StoreError
from zoo.errors import ZooError


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"captionbench {harness.__version__}")
        raise typer.Exit


def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Compare image-captioning architectures fairly, and say what each costs."""


def build_app() -> typer.Typer:
    """The whole command line; every module or folder of this package that offers `register(app)` is a command."""
    app = typer.Typer(
        name="bench",
        help="Train, score and cost image-captioning architectures under the same conditions.",
        epilog="Start with: bench run --models all",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown",
    )
    app.callback()(root)
    for found in sorted(pkgutil.iter_modules(harness.cli.__path__), key=lambda found: found.name):
        module = importlib.import_module(f"harness.cli.{found.name}")
        if hasattr(module, "register"):
            module.register(app)
    return app


def main() -> None:
    """Run `bench`; expected errors end as one message on stderr and exit code 2, Ctrl-C as 130."""
    # Threads that wait by spinning starve each other where cores are shared: several times slower on two busy cores.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal or a pipe that is not of UTF-8 shows a question mark for a dash, not a traceback.
            stream.reconfigure(errors="replace")
    app = build_app()
    try:
        app()
    except (BenchError, ReportError, StoreError, ZooError) as error:
        console = Console(stderr=True, highlight=False)
        console.print(f"[bold red]error:[/] {escape(str(error))}", soft_wrap=True)
        if error.hint:
            console.print(f"[bold]hint:[/] {escape(error.hint)}", soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; the same command continues where it stopped\n")
        sys.exit(130)
