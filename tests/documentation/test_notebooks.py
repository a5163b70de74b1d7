"""The notebooks of the documentation run from top to bottom, and their outputs are those that are stored."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.documentation.pages import ROOT, numbers_in
from tests.results.frames.test_notebook import run, stripped

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
_LARGEST_KB = 30


def stored_output(outputs: Iterable[dict[str, Any]]) -> str:
    """The text below a cell: what it printed, then the value of its last expression."""
    return "".join("".join(output.get("text", ())) or "".join(output["data"]["text/plain"]) for output in outputs)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_gives_its_stored_outputs(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "baselines").symlink_to(ROOT / "baselines")
    monkeypatch.chdir(tmp_path)
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert notebook["nbformat"] == 4
    assert path.stat().st_size < _LARGEST_KB * 1000
    names: dict[str, Any] = {"__name__": "__main__"}
    capsys.readouterr()
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for cell in cells:
        value = run("".join(cell["source"]), names)
        output = stripped(capsys.readouterr().out + value)
        stored = stripped(stored_output(cell["outputs"]))
        assert len(output) == len(stored)
        assert numbers_in("\n".join(output)) == numbers_in("\n".join(stored))
    assert any(cell["outputs"] for cell in cells)
