"""The command line's root: a command that is named is imported alone."""

from __future__ import annotations

import pytest

from harness.cli.app import build_app


def commands(*words: str) -> list[str | None]:
    app = build_app(words)
    return [each.name for each in (*app.registered_commands, *app.registered_groups)]


@pytest.mark.parametrize(
    ("words", "name"), [(("report",), "report"), (("--debug", "import-weights", "x"), "import-weights")]
)
def test_a_command_that_is_named_is_registered_alone(words: tuple[str, ...], name: str) -> None:
    assert commands(*words) == [name]


@pytest.mark.parametrize("words", [(), ("--help",), ("reprot",), ("inputs",), ("app",)])
def test_all_are_registered_where_none_is_named(words: tuple[str, ...]) -> None:
    assert {"report", "run", "import-weights", "cost", "models"} <= set(commands(*words))
