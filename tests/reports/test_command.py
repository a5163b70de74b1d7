"""`bench report`."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from harness.cli import report
from harness.utils.errors import BenchError
from reports.errors import ReportError
from results.store.store import Store

app = typer.Typer()
app.callback()(lambda: None)
report.register(app)


def run(*arguments: str | Path) -> str:
    result = CliRunner().invoke(app, ["report", *map(str, arguments)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def test_it_writes_into_the_workspace_and_prints_where(store: Store, tmp_path: Path) -> None:
    assert store.status("aoanet-s1-plain") == "failed"
    page = Path(run("--workspace", tmp_path).strip())
    assert page == tmp_path / "report" / "index.html"
    assert page.is_file()


def test_out_names_another_folder(store: Store, tmp_path: Path) -> None:
    assert store.status("aoanet-s1-plain") == "failed"
    run("--workspace", tmp_path, "--out", tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b" / "index.html").is_file()


def test_terminal_writes_nothing(store: Store, tmp_path: Path) -> None:
    assert store.status("aoanet-s1-plain") == "failed"
    assert "expansionnet_v2" in run("--workspace", tmp_path, "--terminal")
    assert not (tmp_path / "report").exists()
    text = run("--workspace", tmp_path, "--terminal", "--metric", "ROUGE-L", "--place-unfinished")
    assert "Place: the ranks that the differences in ROUGE-L" in " ".join(text.split())
    with pytest.raises(BenchError, match="--terminal writes nothing"):
        run("--workspace", tmp_path, "--terminal", "--out", tmp_path / "elsewhere")


def test_a_workspace_without_results_says_what_to_type(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=r"bench\.sqlite does not exist") as caught:
        run("--workspace", tmp_path)
    assert "bench run --models all" in str(caught.value.hint)


def test_a_foreign_folder_is_refused_in_one_sentence(store: Store, tmp_path: Path) -> None:
    assert store.status("aoanet-s1-plain") == "failed"
    with pytest.raises(ReportError, match="not a report") as caught:
        run("--workspace", tmp_path, "--out", tmp_path / "data")
    assert "--out" in str(caught.value.hint)


@pytest.mark.parametrize("there", [True, False])
def test_the_report_is_opened_or_its_link_told(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert store.status("aoanet-s1-plain") == "failed"
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda link: opened.append(link) or there)
    said = run("--workspace", tmp_path, "--open") + capsys.readouterr().err
    assert opened == [(tmp_path / "report" / "index.html").as_uri()]
    assert (f"hint: open {opened[0]}" in said) is not there
    with pytest.raises(BenchError, match="--open could show"):
        run("--workspace", tmp_path, "--open", "--terminal")
