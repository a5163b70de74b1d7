"""Errors of usage: one line that names the option, a hint that can be typed, exit code 2, and no box."""

from __future__ import annotations

import pytest

from tests.harness.conftest import bench

CASES = {
    "run --seeds 0": ("--seeds 0: input should be greater than or equal to 1", "--seeds 1"),
    "run --seeds many": ("--seeds many: ", "give a number from 1 to"),
    "run --seeds=-2": ("--seeds -2: ", "--seeds 1"),
    "run --modles blind": ("bench run has no option --modles", "perhaps --models"),
    "run --seeds": ("--seeds has no value", "--seeds VALUE"),
    "data convert captions.csv": ("bench data convert: --out is missing", "add --out PATH: the annotation file"),
    "evaluate": ("bench evaluate: PREDICTIONS is missing", "add PREDICTIONS: "),
    "compare a b --format picture": ("--format picture: ", "for example --format text"),
    "rnu": ("there is no command bench rnu", "perhaps: bench run"),
    "data covnert": ("there is no command bench data covnert", "perhaps: bench data convert"),
    "models list a b c": ("bench models list has no use for these words: b c", "`bench models list --help`"),
}


@pytest.mark.parametrize("words", CASES)
def test_errors_of_usage_are_one_line_and_a_hint(words: str) -> None:
    result = bench(*words.split(), env={"COLUMNS": "200"})
    error, hint = result.output.splitlines()
    assert result.exit_code == 2
    assert error.startswith(f"error: {CASES[words][0]}")
    assert hint.startswith("hint: ")
    assert CASES[words][1] in hint


def test_markup_that_was_typed_is_shown_as_it_is() -> None:
    assert "[red]x" in bench("run", "--seeds", "[red]x").output


@pytest.mark.parametrize("words", [(), ("data",)])
def test_a_command_without_words_shows_its_help(words: tuple[str, ...]) -> None:
    result = bench(*words)
    assert result.exit_code == 2
    assert "Commands" in result.output
    assert "error:" not in result.output
