"""Control characters of names, which a terminal would obey, and passwords of URLs: neither is printed."""

import io
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout

import pytest
import typer
from rich.console import Console
from rich.table import Table

from harness.cli.app import guard_streams
from harness.cli.errors import say_error
from harness.cli.output import format_table
from harness.utils.errors import BenchError
from harness.utils.files import shortened
from harness.utils.progress import Reporter
from results.errors import StoreError

NAME = "a\x1b]0;t\x07\x9b\rb"
SHOWN = r"a\x1b]0;t\x07\x9b\x0db"
URL = "http://user:se@cr/et@host:80/x"


class Terminal(io.StringIO):
    """What a terminal gets."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def printed(say: Callable[[], object]) -> str:
    """What a terminal gets of what is said on guarded streams."""
    found = Terminal()
    with redirect_stdout(found), redirect_stderr(found):
        guard_streams()
        say()
    return found.getvalue()


def in_a_table(text: str) -> None:
    table = Table()
    table.add_column(text)
    Console(width=200).print(table)


@pytest.mark.parametrize(
    "say",
    [
        typer.echo,
        print,
        in_a_table,
        lambda text: typer.echo(format_table(("a", "b"), [(text, "1")], "table")),
        lambda text: Reporter().note(text),
        lambda text: say_error(error := BenchError("wrong", text), error),
    ],
)
def test_a_name_is_shown_and_not_obeyed(say: Callable[[str], None]) -> None:
    said = printed(lambda: say(NAME))
    assert SHOWN in said or "a\ufffd" in said
    assert not any(each in said for each in ("\x1b]", "\x07", "\x9b", "\rb"))


def test_bars_and_lines_of_others_arrive_as_they_are() -> None:
    lines = ["\r 10%|##  |", "\x1b[A", "csv,line\r\n", "a\tb\n"]
    assert printed(lambda: sys.stderr.writelines(lines)) == "".join(lines)
    bold = printed(lambda: Console(force_terminal=True, color_system="standard").print("[bold]bold[/]"))
    assert bold == "\x1b[1mbold\x1b[0m\n"


@pytest.mark.parametrize("kind", [BenchError, StoreError])
def test_errors_have_no_passwords(kind: type[BenchError | StoreError]) -> None:
    error = kind(f"--mirror {URL} cannot be reached", f"type --mirror '{URL}' or ask me@host")
    assert str(error) == "--mirror http://user:***@host:80/x cannot be reached"
    assert error.hint == "type --mirror 'http://user:***@host:80/x' or ask me@host"
    assert shortened(URL + "x" * 400).startswith("http://user:***@host:80/xxx")
    assert "***@host" in printed(lambda: Reporter().note(URL))
