"""The command line's root: what it imports and shows, what shells complete, and how errors of usage are said."""

import re
import subprocess
import sys

import pytest
from typer.main import get_group

from harness.benchmark.baselines import REFERENCE_ROWS
from harness.cli.app import COMMANDS
from harness.cli.options import complete_models
from harness.config.load import preset_summaries
from tests.harness.conftest import bench, bench_environment, command_line

PROGRAM = """
import sys
sys.argv = ["bench"]
from harness.cli.__main__ import main
try:
    main()
finally:
    assert "torch" not in sys.modules
    print(*(name for name in ("harness.cli.run", "harness.cli.report") if name in sys.modules))
"""
WRONG = {
    "run --seeds 0": "--seeds",
    "run --seeds many": "--seeds",
    "run --modles blind": "--modles",
    "run --seeds": "--seeds",
    "data convert captions.csv": "--out",
    "compare a b --format picture": "--format",
    "rnu": "run",
    "data covnert": "convert",
    "models list a b c": "b c",
}
"""Mistyped commands, and what the error names."""


def run(*words: str, **variables: str) -> list[str]:
    """Words printed by `bench` in a process without torch, and last the two commands that it imported."""
    program = PROGRAM.replace('["bench"]', repr(["bench", *words]))
    done = subprocess.run(
        [sys.executable, "-c", program], env=bench_environment(**variables), capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def completed(words: str) -> list[str]:
    """What bash is offered at the end of these words."""
    return run(_BENCH_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=str(words.count(" ")))


def test_help_says_of_each_command_what_it_says_itself_and_imports_none() -> None:
    commands = get_group(command_line()).commands.items()
    assert {name: command.get_short_help_str(1000).rstrip(".") for name, command in commands} == {
        name: said.rstrip(".") for name, said in COMMANDS.items()
    }
    shown = run("--help")
    assert set(COMMANDS) <= set(shown)
    assert shown[-1] == "all", "the page's last word, and no command behind it"
    assert run("report", "--help")[-1] == "harness.cli.report"


def test_the_help_of_run_is_in_panels_on_two_screens() -> None:
    shown = bench("run", "--help", env={"COLUMNS": "100"}).output
    assert len(shown.splitlines()) <= 104
    assert shown.count("╭─") == 8, "seven panels of options, and the presets"
    assert "<" not in shown, "types are as people write them"
    assert {each.opts[0] for each in get_group(command_line()).commands["run"].params} <= {
        *re.split(r"[\s,]+", shown)
    } | {"--help"}
    named = {name for name, said in preset_summaries().items() if not said.startswith("paper track")}
    assert {name for name in named if not name.endswith("-scst")} <= {*shown.split()}


def test_models_and_presets_are_completed() -> None:
    assert completed("bench run --models blind,transformer_bas")[0] == "blind,transformer_base"
    assert completed("bench plan --preset matched-width")[:2] == ["matched-width", "matched-width-scst"]
    offered = complete_models("")
    assert {"all", "updown", "expansionnet_v2", "expansionnet_v2/*", *REFERENCE_ROWS} <= set(offered)
    assert "blind,blind" not in complete_models("blind,b"), "each once"


@pytest.mark.parametrize("words", WRONG)
def test_errors_of_usage_are_one_line_and_a_hint(words: str) -> None:
    result = bench(*words.split(), env={"COLUMNS": "200"})
    error, hint = result.output.splitlines()
    assert result.exit_code == 2
    assert error.startswith("error: ")
    assert WRONG[words] in result.output
    assert hint.startswith("hint: ")


@pytest.mark.parametrize("words", [(), ("data",)])
def test_a_command_without_words_shows_its_help(words: tuple[str, ...]) -> None:
    result = bench(*words)
    assert result.exit_code == 2
    assert "COMMAND [ARGS]" in result.output
    assert "error:" not in result.output
