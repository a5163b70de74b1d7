"""Shell completion, asked as a shell asks: by environment variables, and answered without torch."""

from __future__ import annotations

import subprocess
import sys

import pytest

from harness.benchmark.baselines import REFERENCE_ROWS
from harness.cli.completion import complete_models
from tests.harness.conftest import bench_environment

PROGRAM = """
import sys
sys.argv = ["bench"]
from harness.cli.__main__ import main
try:
    main()
finally:
    assert "torch" not in sys.modules
"""


def completed(words: str) -> list[str]:
    """What bash is offered at the end of these words."""
    asked = {"_BENCH_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=bench_environment(**asked), capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_the_last_name_of_a_list_is_completed() -> None:
    assert completed("bench run --models blind,transformer_bas")[0] == "blind,transformer_base"


def test_presets_are_completed() -> None:
    assert completed("bench plan --preset matched-width") == ["matched-width", "matched-width-scst"]


def test_names_families_and_rows_without_training_are_offered() -> None:
    offered = complete_models("")
    assert {"all", "updown", "expansionnet_v2", "expansionnet_v2/*", *REFERENCE_ROWS} <= set(offered)
    assert "blind,blind" not in complete_models("blind,b"), "each once"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_is_shown_for_each_shell(shell: str) -> None:
    program = PROGRAM.replace('["bench"]', f'["bench", "--show-completion", "{shell}"]')
    done = subprocess.run(
        [sys.executable, "-c", program], env=bench_environment(), capture_output=True, text=True, check=True
    )
    assert "_BENCH_COMPLETE" in done.stdout
