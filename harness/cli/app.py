"""The command line's root: finds the subcommands, shows help, and turns expected errors into one clear message.

Help is in panels, with types as people write them: Typer's own takes as long to import what renders Markdown as the
rest of the command line together.
"""

import importlib
import io
import math
import os
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

import harness
from harness.cli.errors import explained, said_as_ours, say_error, say_interrupted
from harness.training.launch import is_launched
from harness.utils.errors import DEBUG_VARIABLE, BenchError
from harness.utils.signals import end_on_sigterm
from results.errors import StoreError
from zoo.errors import ZooError

PANELS: Final = {
    "Compare architectures": {
        "run": "Train, caption, score, measure and store every model under the same conditions.",
        "plan": "Show what bench run with the same options would do, with an estimate of time and disk; nothing is "
        "started.",
        "tune": "Search learning rate, dropout scale, warm-up and clipping for every model, alike and with the same "
        "budget.",
        "work": "Execute planned runs of a workspace, as bench run or bench plan --store stored them, until none is "
        "left.",
        "flops": "Count parameters and multiply-accumulates (GMAC) of one image, by part.",
        "cost": "Time, memory and energy of captioning, and of training.",
    },
    "Look at results": {
        "report": "Write one HTML folder: leaderboard, domains, costs, trade-offs, curves, gallery, model and run "
        "pages, method.",
        "compare": "Compare two models, runs or workspaces: scores with tests, ratios of costs, and changed captions.",
        "claims": "Say which claims of papers the stored runs support or contradict, and which they cannot tell.",
        "export": "Write files for other programs.",
        "db": "Look into the results database, check, upgrade or merge it, or publish a copy.",
        "regress": "Judge whether this code still computes what it did, on any machine, or write a baseline with "
        "--update.",
    },
    "Your own captions, models and data": {
        "evaluate": "Score captions: BLEU, METEOR, ROUGE-L, CIDEr-D, and SPICE where its models are installed.",
        "caption": "Caption pictures with a trained model or one of hf:, in float32: one line each, the picture and "
        "its caption.",
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
"""What `bench --help` says of each command, whose module or folder of this package it does not import, by task."""
COMMANDS: Final = {name: said for panel in PANELS.values() for name, said in panel.items()}
_PAPERS, _LONGER = "paper track", "-scst"
"""How the summaries of presets of papers begin, and the names of those with a self-critical stage end."""
_TYPES = {int: "N", float: "X", Path: "PATH"}
_WORD = re.compile(r"""(?:[^\s'"]|'[^']*'|"[^"]*")+""")


class Command(TyperCommand):
    """A command whose help is in panels, and whose words are never empty, as unset variables of scripts leave them."""

    def make_context(self, info_name: str | None, args: list[str], *arguments: Any, **named: Any) -> Any:
        """BenchError where a word, or an option's value, is empty."""
        for before, word in pairwise(["", *args]):
            option, equals, value = word.partition("=")
            if not word.strip() or (option.startswith("--") and equals and not value.strip()):
                what = option.strip() or (before if before.startswith("-") else "an argument")
                raise BenchError(f"{what} is empty", "give it a value, or leave it out where it has a default")
        return super().make_context(info_name, args, *arguments, **named)

    def invoke(self, ctx: Any) -> Any:
        """BenchError for NaN, which no bound refuses, and infinity."""
        for parameter in self.params:
            value = ctx.params.get(parameter.name)
            if isinstance(value, float) and not math.isfinite(value):
                raise BenchError(f"{parameter.opts[0]} {value} is not a finite number", f"as {parameter.opts[0]} 10")
        return super().invoke(ctx)

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """Print it."""
        show(self, ctx)


class Group(TyperGroup):
    """A group of commands whose help is in panels."""

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """Print it."""
        show(self, ctx, {"Commands": {name: each.get_short_help_str(1000) for name, each in self.commands.items()}})


def show(command: Any, context: Any, commands: Mapping[str, Mapping[str, str]] | None = None) -> None:
    """Print the help of a command, by panel: its arguments and own options first; and of a group, its commands."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False, emoji=False, markup=False)
    console.print(Padding(command.get_usage(context), (0, 1)), style="bold")
    # What blank lines part, each as one line; of a list each item.
    for paragraph in textwrap.dedent(command.help or "").strip().replace("\n- ", "\n\n- ").split("\n\n"):
        if paragraph.strip():
            console.print(Padding(" ".join(paragraph.split()), (0, 1)))
    panels: dict[str, list[tuple[str, str]]] = {}
    for each in command.get_params(context):
        if not getattr(each, "hidden", False):
            argument = each.param_type_name == "argument"
            panel = getattr(each, "rich_help_panel", None) or ("Arguments" if argument else "Options")
            panels.setdefault(panel, []).append((_typed(each, argument), _said(each)))
    panels |= {title: list(rows.items()) for title, rows in (commands or {}).items()}
    if any(each.name == "preset" and "first-steps" not in (each.help or "") for each in command.params):
        panels["Presets"] = _presets()
    if len(own := panels.pop("Options", [])) > 1 or not panels:  # more than --help
        panels = {title: panels.pop(title) for title in ("Arguments",) if title in panels} | {"Options": own} | panels
    for title, rows in panels.items():
        table = Table(box=None, show_header=False, pad_edge=False, expand=True)
        table.add_column(style="cyan", no_wrap=True)
        table.add_column(ratio=1)
        for name, said in rows:
            table.add_row(Text(name), Text(said))
        # A title that is a string would be markup, whose table of emoji takes a tenth of the time.
        console.print(Panel(table, border_style="dim", title=Text(title), title_align="left"))
    for number, example in enumerate(examples(command.epilog or "")):
        console.print(Padding("Examples:\n" * (not number) + _to_paste(example, console.width - 2), (0, 1)))


def examples(text: str) -> list[str]:
    """The commands of a text, of which a line that begins with spaces continues one."""
    return text.strip().replace("\n  ", " ").splitlines()


def _to_paste(example: str, width: int) -> str:
    """A command in lines that a shell takes, with what it is for above it."""
    command, _, meaning = example.partition(" # ")
    lines = [""]
    for word in _WORD.findall(command):
        if lines[-1].strip() and len(lines[-1]) + 1 + len(word) > width - 2:
            lines.append("   ")
        lines[-1] = f"{lines[-1]} {word}" if lines[-1] else word
    return "\n".join([*textwrap.wrap(meaning, width, initial_indent="# ", subsequent_indent="# "), " \\\n".join(lines)])


def _presets() -> list[tuple[str, str]]:
    """What `--preset` takes, with a sentence each; those of papers and with a self-critical stage as one."""
    from harness.config.load import preset_summaries

    found = preset_summaries()
    return [
        *(each for each in found.items() if not (each[1].startswith(_PAPERS) or each[0].endswith(_LONGER))),
        (f"*{_LONGER}", "the preset * with self-critical training after it"),
        ("*-paper", "a model as its own paper trains it: bench schedules lists them"),
    ]


def _typed(parameter: Any, argument: bool) -> str:
    """How an option is typed, as `--workspace, -w PATH`."""
    if argument:
        return str(parameter.metavar or parameter.name.upper())
    names = ", ".join((*parameter.opts, *parameter.secondary_opts))
    if parameter.is_flag:
        return names
    kind = parameter.type_descriptor.annotation
    several = "|".join(map(str, get_args(kind))) if get_origin(kind) is Literal else None
    return f"{names} {parameter.metavar or several or _TYPES.get(kind, 'TEXT')}"


def _said(parameter: Any) -> str:
    """What an option does, with its default and variable."""
    said = [getattr(parameter, "help", None) or ""]
    default = parameter.default
    if isinstance(getattr(parameter, "show_default", None), str):
        said.append(f"[default: {parameter.show_default}]")
    elif not (default is None or default in ("", (), []) or getattr(parameter, "is_flag", False)):
        said.append(f"[default: {default}]")
    if getattr(parameter, "envvar", None):
        said.append(f"[variable: {parameter.envvar}]")
    return " ".join(said)


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


class _Commands(Mapping[str, Any]):
    """The commands by name, each imported when it is asked for."""

    def __getitem__(self, name: str) -> Any:
        if name not in COMMANDS:
            raise KeyError(name)
        from harness.cli.output import checked

        stem, app = name.replace("-", "_"), typer.Typer()
        module = importlib.import_module(f"harness.cli.{stem}")
        if not hasattr(module, "COMMANDS"):
            command = getattr(module, "COMMAND", None) or getattr(module, stem)
            app.command(name, cls=Command, epilog=module.EXAMPLES)(checked(command))
            return get_group(app).commands[name]
        alone = getattr(module, "ALONE", None)
        group = typer.Typer(name=name, cls=Group, help=COMMANDS[name], no_args_is_help=alone is None)
        if alone is not None:
            group.callback(invoke_without_command=True, epilog=module.EXAMPLES)(alone)
        for each, command in module.COMMANDS.items():
            own = [line for line in examples(module.EXAMPLES) if f"bench {name} {each}" in line]
            group.command(each, cls=Command, epilog="\n".join(own))(checked(command))
        app.add_typer(group)
        return get_group(app).commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class RootGroup(TyperGroup):
    """The root command.

    A module or folder of this package has each: `COMMAND`, or a function of the module's name; or a group's `COMMANDS`
    by name, and `ALONE`, what it does without one. `EXAMPLES` are lines.
    """

    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        self.commands: Any = _Commands()
        self.words: list[str] = []

    def make_context(self, info_name: str | None, args: list[str], *arguments: Any, **named: Any) -> Any:
        self.words = [*args]
        with said_as_ours():
            return super().make_context(info_name, args, *arguments, **named)

    def invoke(self, ctx: Any) -> Any:
        with said_as_ours():
            return super().invoke(ctx)

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """Print it, importing no command."""
        show(self, ctx, PANELS)


def build_app() -> typer.Typer:
    """The command line."""
    app = typer.Typer(
        name="bench",
        cls=RootGroup,
        help="Train, score and cost image-captioning architectures under the same conditions.",
        epilog="bench run --models all",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    app.callback()(root)
    return app


def leave_broken_pipe() -> None:
    """Send what is still to be printed nowhere, so that the interpreter does not fail on it again at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main() -> None:
    """Run `bench`; every error ends as one message on stderr.

    Exit codes: 2 for errors that the user can put right, 70 for bugs, 130 for Ctrl-C, 143 for SIGTERM.
    """
    # Threads that wait by spinning starve each other where cores are shared: several times slower on two busy cores.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if sys.stderr is None:  # closed by 2>&-
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - until the process ends
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal or a pipe that is not of UTF-8 shows a question mark for a dash, not a traceback.
            stream.reconfigure(errors="replace")
    if not is_launched():  # a launcher tells by how its processes end which of them was the first
        end_on_sigterm()
    try:
        if sys.stdout is None:
            raise BenchError("standard output is closed", "leave >&- out, or send it to a file or to /dev/null")
        try:
            build_app()()
        finally:
            sys.stdout.flush()  # a full disk behind `bench ... > file` is told here, not at the interpreter's end
    except SystemExit:
        raise
    except KeyboardInterrupt as interrupt:
        sys.exit(say_interrupted(interrupt))
    except (BenchError, StoreError, ZooError) as error:
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
