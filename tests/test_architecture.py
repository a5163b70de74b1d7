"""What may not be loaded by commands that answer at once; import-linter holds the arrows between the rooms."""

from pathlib import Path

from tests.harness.conftest import heavy_packages_of, heavy_packages_of_each

HEAVY = (
    "torch",
    "torchvision",
    "timm",
    "transformers",
    "pandas",
    "scipy",
    "alembic",
    "fvcore",
    "pycocoevalcap",
    "optuna",
    "fsspec",
    "ray",
    "submitit",
)


def test_quick_commands_load_nothing_heavy(tmp_path: Path) -> None:
    helped = ["run", "plan", "tune", "report", "db", "cost", "cost measure", "export", "export leaderboard", "flops"]
    helped += ["doctor", "evaluate", "prefetch", "compare", "claims"]
    lines = ["--help", "--version", "models", "models show blind", "new-model gnu", "data list"]
    lines += [f"{command} --help" for command in helped]
    found = heavy_packages_of_each([line.split() for line in lines], HEAVY, tmp_path)
    assert dict(zip(lines, found, strict=True)) == dict.fromkeys(lines, (0, set()))


def test_a_report_loads_nothing_heavy(tmp_path: Path) -> None:
    from results import DatasetRecord, ImageRecord, Outcome, Quantity, RunSpec, SplitResult, Store

    (tmp_path / "workspace").mkdir()
    with Store(tmp_path / "workspace" / "bench.sqlite") as store:
        images = (ImageRecord(1, "1.png", "test", ("a ball",)),)
        store.record_dataset(DatasetRecord("scenes", "fingerprint", str(tmp_path), {"test": 1}, images))
        store.plan([RunSpec("key", "blind", "model", 1, "controlled", "fingerprint", {}, {"nrefs": "1"})])
        result = SplitResult("test", {1: "a ball"}, {"overall": {"CIDEr-D": Quantity(1.0)}}, {"CIDEr-D": {1: 1.0}})
        store.finish("key", Outcome((result,), {}, {}))
    assert heavy_packages_of(["report"], HEAVY, tmp_path) == (0, set())
    assert (tmp_path / "workspace" / "report" / "index.html").is_file()
    words = ("export", "leaderboard", "--format", "csv")
    assert heavy_packages_of(words, HEAVY, tmp_path) == (0, {"pandas"})
