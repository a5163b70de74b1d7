"""Errors of usage, as Typer finds them, in the manner of all others: one line, and what to type next."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer

from harness.cli.saying import say_error
from harness.cli.signals import InterruptibleGroup
from harness.utils.errors import BenchError

UsageError: Any = typer.BadParameter.__mro__[1]
"""Of the Click that Typer was released with, which it does not export by this name."""
_SUGGESTED = re.compile(r"No such command '(?P<typed>.*)'\.(?: Did you mean '(?P<meant>\S+)'\?)?", re.DOTALL)
_CHOICES = re.compile(r"is not one of '([^']*)'")
_EXTRA = re.compile(r"Got unexpected extra arguments?(?:\(s\))? \((?P<words>.*)\)", re.DOTALL)


class RootGroup(InterruptibleGroup):
    """The root command, which says errors of usage itself instead of leaving them to Typer's box."""

    def make_context(self, *arguments: Any, **named: Any) -> Any:
        self._words = list(arguments[1] if len(arguments) > 1 else named.get("args", ()))
        return self._without_box(lambda: super(RootGroup, self).make_context(*arguments, **named))

    def invoke(self, ctx: Any) -> Any:
        return self._without_box(lambda: super(RootGroup, self).invoke(ctx))

    def _without_box(self, work: Callable[[], Any]) -> Any:
        with said_as_ours(self._words):
            return work()


@contextmanager
def said_as_ours(words: list[str]) -> Iterator[None]:
    """Say a usage error, and end with its exit code; a command without words still shows its help.

    Args:
        words: the command line, without the program's name.
    """
    try:
        yield
    except UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            raise
        say_error(explained_usage(error, words), error)
        raise typer.Exit(error.exit_code) from error


def explained_usage(error: Any, words: list[str]) -> BenchError:
    """What is wrong, naming the option or argument, and what to type next."""
    command = _command(error.ctx)
    more = f"`{command} --help` shows all options"
    kind, parameter = type(error).__name__, getattr(error, "param", None)
    if kind == "NoSuchOption":
        near = ", ".join(error.possibilities or ())
        hint = f"perhaps {near}; {more}" if near else more
        return BenchError(f"{command} has no option {error.option_name}", hint)
    if kind == "BadOptionUsage":
        said = f"{error.option_name}: {_sentence(error.message)}"
        if "requires an argument" in error.message:
            said = f"{error.option_name} has no value"
        return BenchError(said, f"write one behind it: {error.option_name} VALUE; {more}")
    if kind == "MissingParameter" and parameter is not None:
        shown, described = shown_name(parameter), _sentence(parameter.help or "")
        example = f"{shown} {_value(parameter)}" if parameter.opts[0].startswith("-") else shown
        return BenchError(f"{command}: {shown} is missing", f"add {example}: {described or more}")
    if parameter is not None:
        shown = shown_name(parameter)
        typed = _typed(parameter, words)
        what = shown if typed is None else f"{shown} {shlex.quote(typed) if typed.isprintable() else repr(typed)}"
        return BenchError(f"{what}: {_sentence(error.message)}", _example(parameter, shown, error.message) or more)
    if found := _SUGGESTED.fullmatch(error.message):
        hint = f"`{command} --help` lists them"
        if found["meant"]:
            hint = f"perhaps: {command} {found['meant']}; {hint}"
        return BenchError(f"there is no command {command} {found['typed']}", hint)
    if found := _EXTRA.fullmatch(error.message):
        return BenchError(
            f"{command} has no use for these words: {found['words']}",
            f"leave them out, or quote a value with spaces; {more}",
        )
    return BenchError(f"{command}: {_sentence(error.format_message())}", more)


def _command(context: Any) -> str:
    """The command as it is typed, however the program was started; `bench` where it is not known."""
    if context is None:
        return "bench"
    return "bench" + str(context.command_path).removeprefix(str(context.find_root().info_name))


def shown_name(parameter: Any) -> str:
    """An option's first long name, or an argument's in capitals."""
    if not parameter.opts[0].startswith("-"):
        return str(parameter.metavar or parameter.name.upper())
    return str(next((name for name in parameter.opts if name.startswith("--")), parameter.opts[0]))


def _value(parameter: Any) -> str:
    """What stands for an option's value."""
    return str(parameter.metavar or parameter.name.upper())


def _typed(parameter: Any, words: list[str]) -> str | None:
    """The last value that was typed for an option; None for an argument, or a value of the environment."""
    found = None
    for word, following in zip(words, [*words[1:], None], strict=True):
        name, equals, value = word.partition("=")
        if name in parameter.opts:
            found = value if equals else following
    return found


def _example(parameter: Any, shown: str, message: str) -> str:
    """A value that can be typed, where the option has bounds or choices."""
    if choices := _CHOICES.search(message):
        return f"for example {shown} {choices[1]}"
    low, high = getattr(parameter, "min", None), getattr(parameter, "max", None)
    if low is None and high is None:
        return ""
    bounds = " to ".join(f"{bound:,}" for bound in (low, high) if bound is not None)
    bounds = f"from {bounds}" if low is not None else f"up to {bounds}"
    return f"give a number {bounds}: {shown} {low if low is not None else high}"


def _sentence(message: str) -> str:
    """Without the words of the library that found it, and without a full stop."""
    text = message.removeprefix("Value error, ").strip().removesuffix(".")
    return text[:1].lower() + text[1:]
