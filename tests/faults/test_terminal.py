"""Control characters of names, which a terminal would obey, and passwords of URLs: neither is printed."""

import io
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout

import pytest

from harness.cli.errors import print_error
from harness.cli.inputs import warn
from harness.cli.output import echo, format_table
from harness.utils.errors import BenchError
from harness.utils.files import shortened
from harness.utils.progress import Reporter
from results.errors import StoreError

NAME = "a\x1b]0;t\x07\x9b\rb"
URL = "http://user:se@cr/et@host:80/x"


class Terminal(io.StringIO):
    """What a terminal gets."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def printed(say: Callable[[], object]) -> str:
    """What a terminal gets of what is said."""
    output = Terminal()
    with redirect_stdout(output), redirect_stderr(output):
        say()
    return output.getvalue()


@pytest.mark.parametrize(
    "say",
    [
        echo,
        lambda text: echo(format_table(("a", "b"), [(text, "1")], "table")),
        lambda text: Reporter().note(text),
        lambda text: warn(text, text),
        lambda text: print_error(error := BenchError("wrong", text), error),
    ],
)
def test_a_name_is_shown_and_not_obeyed(say: Callable[[str], None]) -> None:
    text = printed(lambda: say(NAME))
    assert "a\ufffd]0;t\ufffd\ufffd\ufffdb" in text
    assert not any(each in text for each in ("\x1b]", "\x07", "\x9b", "\rb"))


@pytest.mark.parametrize("kind", [BenchError, StoreError])
def test_errors_have_no_passwords(kind: type[BenchError | StoreError]) -> None:
    error = kind(f"--mirror {URL} cannot be reached", f"type --mirror '{URL}' or ask me@host")
    assert str(error) == "--mirror http://user:***@host:80/x cannot be reached"
    assert error.hint == "type --mirror 'http://user:***@host:80/x' or ask me@host"
    assert shortened(URL + "x" * 400).startswith("http://user:***@host:80/xxx")
    assert "***@host" in printed(lambda: Reporter().note(URL))
