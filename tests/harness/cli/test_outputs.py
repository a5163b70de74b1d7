"""What a command may replace: what it owns, and by --force other files; never what it reads."""

import json
import zipfile
from pathlib import Path

import pytest

from harness.cli.output import MANIFEST
from harness.utils.errors import BenchError
from tests.harness.cli.conftest import Fill, contents
from tests.harness.conftest import bench_or_raise

TEXT = b"kept\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fill: Fill) -> Path:
    """A folder, the current one, with a workspace, data to evaluate and convert, and another text."""
    monkeypatch.chdir(tmp_path)
    fill("w", {"updown": 0.0})
    (tmp_path / "notes.txt").write_bytes(TEXT)
    (tmp_path / "link").symlink_to("notes.txt")
    (tmp_path / "away").symlink_to("w")
    (tmp_path / "hard").hardlink_to(tmp_path / "w" / "bench.sqlite")
    images = [{"id": number, "file_name": f"{number}.png"} for number in (1, 2)]
    captions = [{"id": number, "image_id": number, "caption": "a red ball"} for number in (1, 2)]
    (tmp_path / "references.json").write_text(json.dumps({"images": images, "annotations": captions}))
    (tmp_path / "predictions.json").write_text(json.dumps(captions))
    data = tmp_path / "data"
    data.mkdir()
    (data / "dataset.json").write_text(json.dumps({"images": []}))
    (data / "metadata.jsonl").write_text("{}\n")
    return tmp_path


EVALUATE = "evaluate predictions.json --references references.json --no-meteor"
FILES = [
    "export leaderboard --workspace w --out",
    "compare w w --out",
    f"{EVALUATE} --out",
    "data convert references.json --images . --split-by hash:100/0/0 --skip-bad-images --out",
    "cost measure --models none --out",
    "caption predictions.json --run nowhere --out",
    "caption-data references.json --run nowhere --out",
    "judgements predictions.json --out",
    "doctor --gpu --out",
    "tune --models blind --export",
    "data nocaps references.json predictions.json --out",
]
"""Commands that write a file, up to its name."""


@pytest.mark.parametrize("words", FILES)
@pytest.mark.parametrize("out", ["notes.txt", "link"])
def test_another_file_is_never_replaced_without_force(place: Path, words: str, out: str) -> None:
    with pytest.raises(BenchError, match=f"{out} exists") as caught:
        bench_or_raise(*words.split(), out)
    assert "--force" in (caught.value.hint or "")
    assert (place / "notes.txt").read_bytes() == TEXT


@pytest.mark.parametrize("words", [FILES[0], FILES[1], FILES[2]])
def test_force_replaces_another_file(place: Path, words: str) -> None:
    assert bench_or_raise(*words.split(), "notes.txt", "--force")[0] == 0
    assert (place / "notes.txt").read_bytes() != TEXT


@pytest.mark.parametrize(
    ("words", "out"),
    [
        (EVALUATE, "predictions.json"),
        (EVALUATE, "references.json"),
        ("export leaderboard --workspace w", "w/bench.sqlite"),
        ("export leaderboard --workspace away", "w/bench.sqlite"),
        ("export leaderboard --workspace w", "hard"),
        ("export leaderboard --db sqlite:///w/bench.sqlite", "w/bench.sqlite"),
        ("compare hard hard", "hard"),
        ("compare updown updown --workspace w", "w/bench.sqlite"),
        ("caption a.png --run key --regions references.json", "references.json"),
        ("data convert data", "data/metadata.jsonl"),
        ("data nocaps references.json predictions.json", "predictions.json"),
        ("caption predictions.json --run key", "predictions.json"),
        ("caption-data data --run key", "data/dataset.json"),
        ("judgements predictions.json", "predictions.json"),
    ],
)
def test_force_replaces_nothing_that_is_read(place: Path, words: str, out: str) -> None:
    before = contents(place)
    with pytest.raises(BenchError, match="read"):
        bench_or_raise(*words.split(), "--force", "--out", out)
    assert contents(place) == before


@pytest.mark.parametrize("out", ["new.md", "w/new.md", "/dev/stdout", "/dev/null"])
@pytest.mark.usefixtures("place")
def test_new_files_and_devices_are_written(out: str) -> None:
    assert bench_or_raise("export", "leaderboard", "--workspace", "w", "--out", out)[0] == 0


@pytest.mark.usefixtures("place")
def test_an_empty_file_is_nothing_to_lose() -> None:
    Path("empty.md").touch()
    assert bench_or_raise("export", "leaderboard", "--workspace", "w", "--out", "empty.md")[0] == 0
    assert Path("empty.md").read_text()


def test_a_report_does_not_replace_the_database_in_its_folder(place: Path) -> None:
    assert bench_or_raise("report", "--workspace", "w")[0] == 0
    assert bench_or_raise("report", "--workspace", "w")[0] == 0
    (place / "w" / "bench.sqlite").rename(place / "w" / "report" / "bench.sqlite")
    for words in ([], ["--out", "w/report"]):
        with pytest.raises(BenchError, match="which is read"):
            bench_or_raise("report", "--workspace", "w", "--db", "w/report/bench.sqlite", *words)
    assert (place / "w" / "report" / "bench.sqlite").is_file()


def test_files_of_the_manifest_are_rewritten_and_others_by_force_alone(place: Path) -> None:
    words = ("export", "figures", "--workspace", "w", "--out", "figures")
    (place / "figures").mkdir()
    (place / "figures" / "mine.svg").write_bytes(TEXT)
    assert bench_or_raise(*words)[0] == 0
    drawn = (place / "figures" / MANIFEST).read_text().split()
    assert {path.name for path in (place / "figures").iterdir()} == {*drawn, MANIFEST, "mine.svg"}
    assert bench_or_raise(*words)[0] == 0
    (place / "figures" / MANIFEST).unlink()
    (place / "figures" / drawn[0]).write_bytes(TEXT)
    with pytest.raises(BenchError, match=drawn[0]):
        bench_or_raise(*words)
    assert (place / "figures" / drawn[0]).read_bytes() == TEXT
    assert bench_or_raise(*words, "--force")[0] == 0
    assert (place / "figures" / drawn[0]).read_bytes() != TEXT
    assert (place / "figures" / "mine.svg").read_bytes() == TEXT


def test_a_report_is_one_file_or_an_archive(tmp_path: Path) -> None:
    board = str(Path(__file__).parents[3] / "baselines" / "flickr8k.sqlite")
    page, archive = tmp_path / "board.html", tmp_path / "board.zip"
    bench_or_raise("report", "--db", board, "--single-file", "--out", str(page))
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    bench_or_raise("report", "--db", board, "--zip", "--out", str(archive))
    with zipfile.ZipFile(archive) as opened:
        assert {"board/index.html", "board/style.css"} < set(opened.namelist())
    with pytest.raises(BenchError, match="exists"):
        bench_or_raise("report", "--db", board, "--zip", "--out", str(archive))
    bench_or_raise("report", "--db", board, "--zip", "--out", str(archive), "--force")
    for words in (["--zip", "--single-file"], ["--zip", "--terminal"], ["--force"]):
        with pytest.raises(BenchError):
            bench_or_raise("report", "--db", board, *words)
    assert {path.name for path in tmp_path.iterdir()} == {"board.html", "board.zip"}
