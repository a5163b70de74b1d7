"""The rooms' import arrows, and what may not be loaded by commands that answer at once."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ALLOWED = {"zoo": set(), "results": set(), "reports": {"results"}, "harness": {"zoo", "results"}}
COMMANDS = "harness/cli"  # the one place that may touch every room
HEAVY = ("torch", "torchvision", "timm", "transformers", "pandas", "scipy", "alembic", "fvcore", "pycocoevalcap")
FILES = sorted(path for room in ALLOWED for path in (ROOT / room).rglob("*.py"))


def imported_rooms(path: Path) -> set[str]:
    """Every room named by an import statement anywhere in the file, type-checking ones included."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports name their room"
            names.add((node.module or "").split(".")[0])
    return names & set(ALLOWED)


def test_every_room_is_looked_at() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in FILES} == set(ALLOWED)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_imports_point_one_way(path: Path) -> None:
    name = path.relative_to(ROOT).as_posix()
    room = name.split("/")[0]
    allowed = set(ALLOWED) if name.startswith(f"{COMMANDS}/") else ALLOWED[room] | {room}
    assert imported_rooms(path) <= allowed


def loaded_by(*arguments: str, folder: Path) -> tuple[int, set[str]]:
    """Run `bench` with these arguments in `folder`; gives its exit code and the heavy packages it loaded."""
    program = (
        "import sys\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        f"sys.argv = ['bench', *{list(arguments)!r}]\n"
        "from harness.cli.app import main\n"
        "code = 0\n"
        "try:\n    main()\n"
        "except SystemExit as end:\n    code = end.code or 0\n"
        f"found = [name for name in {HEAVY!r} if name in sys.modules]\n"
        "sys.stdout.flush()\n"
        "print('\\n=>', code, *found)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, timeout=300, check=True
    )
    code, *found = done.stdout.rsplit("=>", 1)[1].split()
    return int(code), set(found)


@pytest.mark.parametrize(
    "line",
    [
        "--help",
        "--version",
        "models",
        "report --help",
        "run --help",
        "db --help",
        "cost measure --help",
        "export leaderboard --help",
    ],
)
def test_quick_commands_load_nothing_heavy(line: str, tmp_path: Path) -> None:
    assert loaded_by(*line.split(), folder=tmp_path) == (0, set())


def test_a_report_loads_nothing_heavy(tmp_path: Path) -> None:
    from results import DatasetRecord, ImageRecord, Outcome, Quantity, RunSpec, SplitResult, Store

    (tmp_path / "workspace").mkdir()
    with Store(tmp_path / "workspace" / "bench.sqlite") as store:
        images = (ImageRecord(1, "1.png", "test", ("a ball",)),)
        store.record_dataset(DatasetRecord("scenes", "fingerprint", str(tmp_path), {"test": 1}, images))
        store.plan([RunSpec("key", "blind", "model", 1, "controlled", "fingerprint", {}, {"nrefs": "1"})])
        result = SplitResult("test", {1: "a ball"}, {"overall": {"CIDEr-D": Quantity(1.0)}}, {"CIDEr-D": {1: 1.0}})
        store.finish("key", Outcome((result,), {}, {}))
    assert loaded_by("report", folder=tmp_path) == (0, set())
    assert (tmp_path / "workspace" / "report" / "index.html").is_file()
    assert loaded_by("export", "leaderboard", "--format", "csv", folder=tmp_path) == (0, {"pandas"})
