"""What may not be loaded by commands that answer at once; import-linter holds the arrows between the rooms."""

from pathlib import Path

from results import Store
from tests.harness.conftest import heavy_packages_of_each
from tests.results.conftest import Make

HEAVY = (
    "torch", "torchvision", "timm", "transformers", "pandas", "scipy", "alembic", "fvcore", "pycocoevalcap", "optuna",
    "ray", "submitit", "matplotlib",
)  # fmt: skip


def test_quick_commands_load_nothing_heavy(tmp_path: Path) -> None:
    helped = ["run", "plan", "tune", "report", "db", "cost", "cost measure", "export", "export leaderboard", "flops"]
    helped += ["doctor", "evaluate", "prefetch", "compare"]
    lines = ["--help", "--version", "models", "models show blind", "new-model gnu", "data list"]
    lines += [f"{command} --help" for command in helped]
    found = heavy_packages_of_each([line.split() for line in lines], HEAVY, tmp_path)
    assert dict(zip(lines, found, strict=True)) == dict.fromkeys(lines, (0, set()))


def test_a_report_loads_nothing_heavy(tmp_path: Path) -> None:
    (tmp_path / "workspace").mkdir()
    with Store(tmp_path / "workspace" / "bench.sqlite") as store:
        store.record_dataset(Make.dataset())
        Make.run(store)
    assert heavy_packages_of_each([["report"]], HEAVY, tmp_path) == [(0, set())]
    assert (tmp_path / "workspace" / "report" / "index.html").is_file()
    formats = ("markdown", "csv", "latex", "json")
    lines = [("export", "leaderboard", "--format", format) for format in formats]
    assert heavy_packages_of_each(lines, HEAVY, tmp_path) == [(0, set())] * len(formats)
