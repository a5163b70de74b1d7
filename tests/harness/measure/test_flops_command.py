"""`bench flops` as a user types it, on models of unit-test size."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import harness.cli.flops
import zoo.registry
from harness.errors import BenchError
from zoo.registry import model_card

SMALL = ["--visual-dim", "8", "--visual-length", "9", "--vocab-size", "30", "--caption-length", "4", "--beam-size", "2"]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> typer.Typer:
    create = zoo.registry.create_model

    def create_tiny(name: str, **arguments: Any) -> Any:
        if name == "blind":
            raise ValueError("it is\nbroken")
        return create(name, **arguments, **model_card(name).tiny)

    monkeypatch.setattr(zoo.registry, "create_model", create_tiny)
    monkeypatch.setattr(zoo.registry, "list_models", _listing)
    app = typer.Typer()
    app.callback()(lambda: None)
    harness.cli.flops.register(app)
    return app


def _listing(pattern: str = "*") -> list[str]:
    known = {"*": ["blind", "transformer_base"], "transformer*": ["transformer_base"]}
    return known.get(pattern, [])


def test_table_fits_eighty_columns_and_states_its_conditions(bench: typer.Typer) -> None:
    result = CliRunner().invoke(bench, ["flops", "transformer*", *SMALL])
    assert result.exit_code == 0
    assert max(len(line) for line in result.output.splitlines()) <= 80
    row = next(line.split() for line in result.output.splitlines() if "transformer_base" in line)
    assert len(row) == 7
    assert "9 x 8 features, 30 words, 4 tokens" in result.output
    assert "Beam 2" in result.output
    assert "--operators lists them" in result.output


def test_a_broken_model_is_a_row_and_the_others_go_on(bench: typer.Typer) -> None:
    result = CliRunner().invoke(bench, ["flops", *SMALL])
    assert result.exit_code == 1
    rows = {line.split()[0]: line.split() for line in result.stdout.splitlines() if line.split()}
    assert rows["blind"][1] == "failed"
    assert rows["transformer_base"][1].replace(",", "").isdigit()
    assert "blind: ValueError: it is broken" in result.stderr


def test_csv_holds_exact_numbers_and_the_failure(bench: typer.Typer) -> None:
    result = CliRunner().invoke(bench, ["flops", *SMALL, "--format", "csv"])
    assert result.exit_code == 1
    broken, whole = csv.DictReader(io.StringIO(result.stdout))
    assert (broken["model"], broken["parameters"], broken["failure"]) == ("blind", "", "ValueError: it is broken")
    assert int(whole["encoder_mac"]) < int(whole["greedy_mac"]) < int(whole["beam_mac"])
    assert whole["failure"] == ""
    assert "add:" in whole["uncounted"]


def test_markdown_with_operators(bench: typer.Typer) -> None:
    result = CliRunner().invoke(bench, ["flops", "transformer*", *SMALL, "--format", "markdown", "--operators"])
    assert result.exit_code == 0
    header, rule, row = result.output.splitlines()[:3]
    assert header.count("|") == rule.count("|") == row.count("|") == 8
    assert row.startswith("| transformer_base | ")
    assert "GMAC: linear" in result.output
    assert "not counted: add x" in result.output


def test_no_model_of_that_name(bench: typer.Typer) -> None:
    result = CliRunner().invoke(bench, ["flops", "nothing*"])
    assert isinstance(result.exception, BenchError)
    assert "nothing*" in str(result.exception)


def test_help_needs_no_torch_and_carries_examples() -> None:
    code = (
        "import sys, typer; from harness.cli import flops; app = typer.Typer(); app.callback()(lambda: None); "
        "flops.register(app); app(['flops', '--help'], standalone_mode=False); "
        "sys.exit(bool({'torch', 'timm', 'numpy', 'fvcore'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Examples" in done.stdout
