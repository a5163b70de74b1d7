"""What `--help` shows: panels of options and commands, with types as people write them.

Typer's own takes as long to import what renders Markdown as the rest of the command line together.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Mapping
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from typer.core import TyperCommand, TyperGroup

from harness.utils.errors import BenchError

_PAPERS, _LONGER = "paper track", "-scst"
"""How the summaries of presets of papers begin, and the names of those with a self-critical stage end."""
_TYPES = {int: "N", float: "X", Path: "PATH"}
"""What stands for a value whose option names none itself, by its type; TEXT for others."""
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
    choices = kind if isinstance(kind, type) and issubclass(kind, StrEnum) else get_args(kind)
    several = "|".join(map(str, choices)) if get_origin(kind) is Literal or choices is kind else None
    return f"{names} {parameter.metavar or several or _TYPES.get(kind, 'TEXT')}"


def _said(parameter: Any) -> str:
    """What an option does, with its default and variable."""
    said = [getattr(parameter, "help", None) or ""]
    default = parameter.default
    if isinstance(getattr(parameter, "show_default", None), str):
        said.append(f"[default: {parameter.show_default}]")
    elif not (default is None or default in ("", (), []) or getattr(parameter, "is_flag", False)):
        said.append(f"[default: {getattr(default, 'value', default)}]")
    if getattr(parameter, "envvar", None):
        said.append(f"[variable: {parameter.envvar}]")
    return " ".join(said)
