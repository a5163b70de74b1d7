"""What a command may replace: earlier versions of what it writes, and by --force other texts; nothing that it reads."""

import json
from itertools import product
from pathlib import Path

import pytest

from harness.utils.errors import BenchError
from tests.harness.cli.conftest import Fill, contents
from tests.harness.conftest import bench_or_raise

TEXT = b"kept\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fill: Fill) -> Path:
    """A folder, the current one, with a workspace and other files."""
    monkeypatch.chdir(tmp_path)
    w = fill("w", {"updown": 0.0})
    for folder in ("runs/updown-s0-1", "cache", "tuning"):
        (w / folder).mkdir(parents=True)
    for name in ("runs/updown-s0-1/run.json", "tuning/updown.json", "notes.txt"):
        (w / name).write_bytes(TEXT)
    for name in ("notes.txt", "Makefile", "script.py"):
        (tmp_path / name).write_bytes(TEXT)
    (tmp_path / "binary").write_bytes(b"\x89PNG\0")
    (tmp_path / "empty.md").write_bytes(b"")
    (tmp_path / "away").symlink_to("w")
    (tmp_path / "hard").hardlink_to(w / "bench.sqlite")
    data = tmp_path / "data"
    data.mkdir()
    (data / "dataset.json").write_text(json.dumps({"images": []}))
    (data / "metadata.jsonl").write_text("{}\n")
    return tmp_path


KEPT = [
    "w/bench.sqlite", "./w/../w/bench.sqlite", "away/bench.sqlite", "w/bench.sqlite-wal", "hard",
    "w/tuning/updown.json", "w/runs/updown-s0-1/run.json", "w/runs/new.md", "w/cache/new.md", "binary",
]  # fmt: skip


@pytest.mark.parametrize("where", ["--workspace=w", "--workspace=away", "--db=sqlite:///w/bench.sqlite", "--db=hard"])
def test_what_is_never_replaced(place: Path, where: str) -> None:
    before = contents(place)
    for out, spelled in product(KEPT, (Path, Path.absolute)):
        with pytest.raises(BenchError, match="--out") as caught:
            bench_or_raise("export", "leaderboard", where, "--force", "--out", spelled(Path(out)))
        assert caught.value.hint
    assert contents(place) == before


@pytest.mark.parametrize("db", ["results.sqlite", "sqlite:///results.sqlite", "sqlite:///{0}/results.sqlite"])
def test_a_database_elsewhere_has_what_is_beside_it(place: Path, db: str) -> None:
    (place / "w" / "bench.sqlite").rename(place / "results.sqlite")
    for out in ("results.sqlite", "results.sqlite-wal", "results.sqlite-journal"):
        with pytest.raises(BenchError, match="--db"):
            bench_or_raise("export", "leaderboard", "--db", db.format(place), "--out", out, "--force")


@pytest.mark.parametrize("out", ["notes.txt", "w/notes.txt", "Makefile", "script.py"])
def test_other_texts_are_replaced_by_force_alone(place: Path, out: str) -> None:
    words = ("export", "leaderboard", "--workspace", "w", "--out", out)
    with pytest.raises(BenchError, match=f"--out {out}") as caught:
        bench_or_raise(*words)
    assert "--force" in (caught.value.hint or "")
    assert (place / out).read_bytes() == TEXT
    assert bench_or_raise(*words, "--force")[0] == 0
    assert (place / out).read_bytes() != TEXT
    assert bench_or_raise(*words)[0] == 0  # now it is an earlier version


@pytest.mark.parametrize("out", ["empty.md", "new.md", "w/new.md", "w/report/new.md", "/dev/stdout", "/dev/null"])
@pytest.mark.usefixtures("place")
def test_what_loses_nothing_is_written(out: str) -> None:
    for _ in range(2):
        assert bench_or_raise("export", "leaderboard", "--workspace", "w", "--out", out)[0] == 0


@pytest.mark.parametrize("file", ["dataset.json", "metadata.jsonl"])
def test_what_is_in_a_folder_that_is_read_stays(place: Path, file: str) -> None:
    before = contents(place)
    for words in (["data", "convert", "data"], ["caption", "--data", "data", "--run", "key"]):
        with pytest.raises(BenchError, match=f"--out data/{file}"):
            bench_or_raise(*words, "--out", f"data/{file}", "--force")
    assert contents(place) == before


def test_a_report_does_not_replace_the_database_in_its_folder(place: Path) -> None:
    assert bench_or_raise("report", "--workspace", "w")[0] == 0
    (place / "w" / "bench.sqlite").rename(place / "w" / "report" / "bench.sqlite")
    for words in ([], ["--out", "w/report"]):
        with pytest.raises(BenchError, match="--db"):
            bench_or_raise("report", "--workspace", "w", "--db", "w/report/bench.sqlite", *words)
    assert (place / "w" / "report" / "bench.sqlite").is_file()


def test_files_in_a_folder_are_held_to_the_same(place: Path) -> None:
    words = ("export", "figures", "--workspace", "w", "--out", "figures")
    assert bench_or_raise(*words)[0] == 0
    assert bench_or_raise(*words)[0] == 0
    drawn = min((place / "figures").iterdir())
    drawn.write_bytes(TEXT)
    with pytest.raises(BenchError, match=drawn.name):
        bench_or_raise(*words)
    assert drawn.read_bytes() == TEXT
    assert bench_or_raise(*words, "--force")[0] == 0


@pytest.mark.parametrize(
    ("words", "formats"),
    [
        ("export leaderboard --workspace w", "markdown csv latex json"),
        ("claims --workspace w", "text markdown"),
        ("compare w w", "text markdown json"),
        ("compare updown updown --workspace w", "markdown"),
    ],
)
@pytest.mark.usefixtures("place")
def test_an_earlier_version_is_replaced(words: str, formats: str) -> None:
    for form in formats.split():
        for _ in range(2):
            assert bench_or_raise(*words.split(), "--format", form, "--out", form)[0] == 0
