"""The command line's root: registers the subcommands and turns expected errors into one clear message."""

from __future__ import annotations

import importlib
import io
import os
import pkgutil
import sys
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer
from typer.models import CommandInfo

import harness
import harness.cli
from harness.cli.checked import checked
from harness.cli.last_resort import explained, leave_broken_pipe
from harness.cli.saying import say_error
from harness.cli.signals import say_interrupted
from harness.cli.terminal import guard_streams
from harness.cli.usage import RootGroup
from harness.training.launch import is_launched
from harness.utils.errors import DEBUG_VARIABLE, BenchError
from harness.utils.signals import end_on_sigterm
from reports.errors import ReportError
from results.errors import StoreError
from zoo.errors import ZooError


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"captionbench {harness.__version__}")
        raise typer.Exit


def root(
    version: Annotated[  # noqa: ARG001
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error, as BENCH_DEBUG=1 does.")
    ] = False,
) -> None:
    """Compare image-captioning architectures fairly, and say what each costs."""
    if debug:
        os.environ[DEBUG_VARIABLE] = "1"


def build_app(words: Sequence[str] = ()) -> typer.Typer:
    """The command line; every module or folder of this package that offers `register(app)` is a command.

    Where the first of the `words` to come is a command's name, that command alone is imported.
    """
    app = typer.Typer(
        name="bench",
        cls=RootGroup,
        help="Train, score and cost image-captioning architectures under the same conditions.",
        epilog="Start with: bench run --models all",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown",
    )
    app.callback()(root)
    names = sorted(found.name for found in pkgutil.iter_modules(harness.cli.__path__))
    first = next((word.replace("-", "_") for word in words if not word.startswith("-")), "")
    for name in [first] if _is_command(first, names) else names:
        module = importlib.import_module(f"harness.cli.{name}")
        if hasattr(module, "register"):
            module.register(app)
    for command in _commands(app):
        command.callback = checked(command.callback) if command.callback else None
    return app


def _commands(app: typer.Typer) -> Iterator[CommandInfo]:
    yield from app.registered_commands
    for group in app.registered_groups:
        if group.typer_instance is not None:
            yield from _commands(group.typer_instance)


def _is_command(name: str, names: Sequence[str]) -> bool:
    return name in names and hasattr(importlib.import_module(f"harness.cli.{name}"), "register")


def main() -> None:
    """Run `bench`; every error ends as one message on stderr.

    Exit codes: 2 for errors that the user can put right, 70 for bugs, 130 for Ctrl-C, 143 for SIGTERM.
    """
    # Threads that wait by spinning starve each other where cores are shared: several times slower on two busy cores.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal or a pipe that is not of UTF-8 shows a question mark for a dash, not a traceback.
            stream.reconfigure(errors="replace")
    if not is_launched():  # a launcher tells by how its processes end which of them was the first
        end_on_sigterm()
    try:
        guard_streams()
        try:
            build_app(sys.argv[1:])()
        finally:
            sys.stdout.flush()  # a full disk behind `bench ... > file` is told here, not at the interpreter's end
    except SystemExit:
        raise
    except KeyboardInterrupt as interrupt:
        sys.exit(say_interrupted(interrupt))
    except (BenchError, ReportError, StoreError, ZooError) as error:
        say_error(error, error)
        sys.exit(2)
    except BrokenPipeError:
        leave_broken_pipe()
        sys.exit(1)
    except BaseException as error:  # the last resort
        message, code = explained(error, sys.argv[1:])
        say_error(message, error)
        if isinstance(error, OSError):
            leave_broken_pipe()
        sys.exit(code)
