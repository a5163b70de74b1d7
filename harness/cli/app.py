"""The root of the command line: it finds the subcommands and prints each error as one message."""

import importlib
import inspect
import io
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, pairwise
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

import harness
from harness.cli.errors import explain, print_error, print_interrupted, usage_errors
from harness.training.launch import is_launched
from harness.utils.errors import DEBUG_VARIABLE, BenchError
from harness.utils.signals import end_on_sigterm
from results.errors import StoreError
from zoo.errors import ZooError

PANELS: Final = {
    "Compare architectures": {
        "run": "Train, caption, score, measure and store every model under the same conditions.",
        "plan": "Show what bench run with the same options would do; nothing is started.",
        "tune": "Search learning rate, dropout scale, warm-up and clipping for every model, alike and with the same "
        "budget.",
        "work": "Execute planned runs of a workspace, as bench run or bench plan --store stored them, until none is "
        "left.",
        "flops": "Count parameters and multiply-accumulates (GMAC) of one image, by part.",
        "flops-table": "Print Table VI of ExpansionNet v2's paper: each number as printed, by its convention, and as "
        "counted here.",
        "cost": "Measure time, memory and energy of captioning.",
    },
    "Look at results": {
        "report": "Write one HTML folder: leaderboard, domains, costs, trade-offs, curves, gallery, model and run "
        "pages, method.",
        "compare": "Compare two models, runs or workspaces: scores with tests, ratios of costs, and changed captions.",
        "export": "Write files for other programs.",
        "db": "Look into the results database, check, upgrade or merge it, or publish a copy.",
        "regress": "Judge whether this code still computes what its baseline says, up to rounding, on any machine, "
        "in a minute.",
    },
    "Your own captions, models and data": {
        "evaluate": "Score captions: BLEU, METEOR, ROUGE-L, CIDEr-D, and SPICE where its models are installed.",
        "judgements": "Say how far each metric agrees with people's ratings of captions.",
        "caption": "Caption pictures with a trained model or one of hf:, in float32: one line each, the picture and "
        "its caption.",
        "caption-data": "Caption a split of a data set with a trained model or one of hf:, in float32, on what it was "
        "trained on.",
        "attention": "Caption pictures, and draw each word's attention map and the encoder's, one PNG a picture.",
        "new-model": "Write a small captioner that trains, NAME.py, and its test, test_NAME.py, to make a model of "
        "one's own from.",
        "import-weights": "Turn a released checkpoint and its vocabulary into a run that captions pictures and can be "
        "scored.",
        "data": "List, download, convert and verify data sets, and prepare their features.",
    },
    "Set up, and see what there is": {
        "doctor": "Show what works on this machine, and what to type next.",
        "models": "List the architectures, or show one of them.",
        "schedules": "List the training schedules and the presets that use them, or show a schedule or a preset whole.",
        "prefetch": "Fetch what some metrics and models need.",
    },
}
"""The text of `bench --help` for each command, by panel; printing it imports no command."""
COMMANDS: Final = dict(chain.from_iterable(commands.items() for commands in PANELS.values()))


class Command(TyperCommand):
    """A command that refuses empty words, as an unset variable of a script leaves them."""

    def make_context(self, info_name: str | None, args: list[str], *arguments: Any, **keywords: Any) -> Any:
        """BenchError if a word, or an option's value, is empty."""
        for previous, word in pairwise(["", *args]):
            option, equals, value = word.partition("=")
            if not word.strip() or (option.startswith("--") and equals and not value.strip()):
                name = option.strip() or (previous if previous.startswith("-") else "an argument")
                raise BenchError(f"{name} is empty", "give it a value, or leave it out if it has a default")
        return super().make_context(info_name, args, *arguments, **keywords)

    def invoke(self, ctx: Any) -> Any:
        """BenchError for an infinite number, or for NaN, which passes every bound."""
        for parameter in self.params:
            value = ctx.params.get(parameter.name)
            if isinstance(value, float) and not math.isfinite(value):
                raise BenchError(f"{parameter.opts[0]} {value} is not a finite number", f"as {parameter.opts[0]} 10")
        return super().invoke(ctx)


def _paragraphs(text: str) -> str:
    """A docstring for Typer: each paragraph in one line, with brackets escaped from rich's markup."""
    from rich.markup import escape

    paragraphs = inspect.cleandoc(text).split("\n\n")
    return escape("\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs))


def _examples(text: str) -> str:
    """Example commands for the end of a help text."""
    from rich.markup import escape

    return f"Examples:\n\n{escape(text.strip())}" if text.strip() else ""


def _show_version(show: bool) -> None:
    if show:
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
    """Compare image-captioning architectures under equal conditions, with their costs."""
    if debug:
        os.environ[DEBUG_VARIABLE] = "1"


class _Commands(Mapping[str, Any]):
    """The commands by name, each imported on first use."""

    def __getitem__(self, name: str) -> Any:
        if name not in COMMANDS:
            raise KeyError(name)
        module = importlib.import_module(f"harness.cli.{name.replace('-', '_')}")
        if not hasattr(module, "COMMANDS"):
            app = _typer()
            command = getattr(module, "COMMAND", None) or getattr(module, name.replace("-", "_"))
            _add(app, name, command, module.EXAMPLES)
            return get_group(app).commands[name]
        default = getattr(module, "ALONE", None)
        group = _typer(name=name, help=COMMANDS[name], no_args_is_help=default is None)
        if default is not None:
            group.callback(invoke_without_command=True, help=COMMANDS[name])(default)
        for subcommand, function in module.COMMANDS.items():
            _add(group, subcommand, function, module.EXAMPLES.get(subcommand, ""))
        app = _typer()
        app.add_typer(group)
        return get_group(app).commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


def _typer(**settings: Any) -> typer.Typer:
    return typer.Typer(rich_markup_mode="rich", **settings)


def _add(app: typer.Typer, name: str, function: Callable[..., None], examples: str) -> None:
    help_text = _paragraphs(function.__doc__ or "")
    epilog = _examples(examples)
    app.command(name, cls=Command, help=help_text, epilog=epilog)(function)


class RootGroup(TyperGroup):
    """The root command.

    Each command is a module or folder of this package. It has `COMMAND`, or a function of the module's name, and
    `EXAMPLES`. A group of commands has `COMMANDS` and `EXAMPLES` by name, and `ALONE`, called without a subcommand.
    """

    def __init__(self, **keywords: Any) -> None:
        super().__init__(**keywords)
        self.commands: Any = _Commands()
        self.words: list[str] = []

    def make_context(self, info_name: str | None, args: list[str], *arguments: Any, **keywords: Any) -> Any:
        self.words = [*args]
        with usage_errors():
            return super().make_context(info_name, args, *arguments, **keywords)

    def invoke(self, ctx: Any) -> Any:
        with usage_errors():
            return super().invoke(ctx)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help without importing any command."""
        described = {
            name: TyperCommand(name, help=text, rich_help_panel=panel)
            for panel, commands in PANELS.items()
            for name, text in commands.items()
        }
        loaded = self.commands
        self.commands = described
        super().format_help(ctx, formatter)
        self.commands = loaded


def build_app() -> typer.Typer:
    """The command line."""
    app = _typer(
        name="bench",
        cls=RootGroup,
        help="Train, score and cost image-captioning architectures under the same conditions.",
        epilog=_examples("bench run --models all"),
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    app.callback()(root)
    return app


def leave_broken_pipe() -> None:
    """Discard buffered output, on which the interpreter would fail again at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _prepare_streams() -> None:
    """Open standard error if it is closed, and have characters that a stream cannot encode printed as `?`."""
    if sys.stderr is None:  # closed by 2>&-
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - until the process ends
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def main() -> None:
    """Run `bench`; every error is printed as one message on stderr.

    Exit codes: 2 for errors that the user can correct, 70 for bugs, 130 for Ctrl-C, 143 for SIGTERM.
    """
    # Threads that spin while they wait starve each other on shared cores: several times slower on two busy cores.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    _prepare_streams()
    if not is_launched():  # a launcher needs to see which of its processes the signal ended
        end_on_sigterm()
    try:
        if sys.stdout is None:
            raise BenchError("standard output is closed", "leave >&- out, or send it to a file or to /dev/null")
        try:
            build_app()()
        finally:
            sys.stdout.flush()  # raises here if the disk behind `bench ... > file` is full
    except SystemExit:
        raise
    except KeyboardInterrupt as interrupt:
        sys.exit(print_interrupted(interrupt))
    except (BenchError, StoreError, ZooError) as error:
        print_error(error, error)
        sys.exit(2)
    except BrokenPipeError:
        leave_broken_pipe()
        sys.exit(1)
    except BaseException as error:  # an error that nothing else expects
        message, code = explain(error, sys.argv[1:])
        print_error(message, error)
        if isinstance(error, OSError):
            leave_broken_pipe()
        sys.exit(code)
