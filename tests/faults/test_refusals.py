"""What nobody means: refused by a command before any work, with the option or file named, and nothing written.

Numbers beyond all sense, options without effect, empty values, databases that would be lost, pipes and devices where a
file is read.
"""

import json
import os
from pathlib import Path

import pytest

from harness.utils.errors import BenchError
from results.errors import StoreError
from tests.harness.conftest import bench
from zoo.errors import ZooError

REFERENCES = {"images": [{"id": 1}], "annotations": [{"image_id": 1, "caption": "a red ball"}]}
NUMBERS = {
    "cost measure --batch 1,99999999": "--batch",
    "cost measure --beam 99999": "--beam",
    "cost measure --energy-seconds inf": "--energy-seconds",
    "cost measure --energy-seconds nan": "--energy-seconds",
    "flops --models blind --position 21": "--position 21",
    "flops --models blind --position 6 --caption-length 5": "--position 6",
    "plan --seeds 3 --first-seed 2147483646": "--first-seed",
    "run --devices 1000 --device cpu --backbone filterbank": "--devices",
    "run --jobs 99999": "--jobs",
    f"run --jobs {'9' * 5000}": "--jobs",
    "run --seeds 2 --first-seed 2147483646 --control auto": "--first-seed",
    "run --seeds 3 --first-seed 2147483646": "--first-seed",
}
WITHOUT_EFFECT = {
    "caption a.png --run key --images .": "--images: read with --data alone",
    "caption a.png --run key --split val": "--split: read with --data alone",
    "evaluate predictions.json --references references.json --split val": "names no splits",
    "export submission predictions.json --server coco --images references.json --out up --workspace w": "--workspace",
    "flops --models blind --backbone resnet18": "--backbone",
    "flops --models blind --image-size 224": "--image-size",
    "flops --preset expansionnet-table-vi --backbone resnet18": "published table",
    "plan --data coco --backbone resnet18 --graphs x": "--backbone, --graphs: not read",
    "plan --data coco --regions no-folder": "--regions: not read",
    "plan --detect 1 --seeds 3 --models blind": "--models, --seeds: not used by --detect",
    "plan --region-count first:3": "--region-count and --region-bins need --regions",
    "run --clip org/name": "--clip: read by --more-metrics alone",
    "run --data .": "holds no dataset*.json",
    "run --data nowhere": "there is no data set at nowhere",
    "tune --data nowhere": "there is no data set at nowhere",
}
EMPTY = (
    "caption a.png --run",
    "data features scenes --backbone",
    "flops --backbone",
    "import-weights m c.pth --vocabulary v --backbone",
    "report --workspace",
    "run --backbone",
    "run --db",
    "run --workspace",
)
IN_MEMORY = (
    "sqlite://",
    "sqlite:///",
    "sqlite:///:memory:",
    "sqlite+pysqlite://",
    ":memory:",
    "sqlite:///file::memory:?uri=true",
    "sqlite:///file:a?mode=memory&uri=true",
)
READING = (
    "data features {}",
    "data nocaps {} references.json --out joined.json",
    "data verify {}",
    "db info --db {}",
    "db merge {} --workspace .",
    "evaluate references.json --references {}",
    "evaluate {} --references references.json",
    "import-weights expansionnet_v2 references.json --vocabulary {}",
    "import-weights expansionnet_v2 {} --vocabulary references.json",
    "prefetch spice --from {}",
    "regress --train --baseline {}",
    "report --db {}",
    "run --data {} --backbone filterbank",
    "run --tuned {}",
)
WRITING = (
    "caption a.png --run key --out",
    "claims nowhere --out",
    "compare a b --out",
    "cost measure --models nothing --out",
    "data nocaps nowhere nowhere --out",
    "evaluate nowhere --references nowhere --out",
    "export leaderboard --out",
)
CASES: list[tuple[list[str], str]] = [
    *((words.split(), said) for words, said in (NUMBERS | WITHOUT_EFFECT).items()),
    *(([*words.split(), empty], f"{words.split()[-1]} is empty") for words in EMPTY for empty in ("", " ")),
    *((["run", "--workspace", "w", "--db", db], f"--db {db} is a database in memory") for db in IN_MEMORY),
    *((words.format(file).split(), file) for words in READING for file in ("pipe", "zero", "loop", "~nobody-here/x")),
    *(([*words.split(), place], place) for words in WRITING for place in ("folder", "file/out", "loop", "x" * 300)),
    (["caption", "a.png", "--run", "key", "--attention", "--attention-out", "file"], "--attention-out file"),
    (["export", "submission", "k", "--server", "coco", "--images", "l.json", "--out", "file"], "--out file"),
    (["data", "verify", "scenes", "--workspace", "file"], "file"),
    (["data", "features", "scenes", "--workspace", "file"], "file"),
]


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The current folder, with what is no regular file, and references."""
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    Path("zero").symlink_to("/dev/zero")
    Path("loop").symlink_to("loop")
    Path("folder").mkdir()
    Path("file").touch()
    Path("references.json").write_text(json.dumps(REFERENCES))
    Path("predictions.json").write_text(json.dumps(REFERENCES["annotations"]))
    return tmp_path


def contents(folder: Path) -> set[Path]:
    """All but a workspace that is made, and its database."""
    return {path for path in folder.rglob("*") if not path.name.startswith(("workspace", "bench.sqlite"))}


@pytest.mark.parametrize(("words", "said"), CASES, ids=[" ".join(words)[:80] for words, _ in CASES])
def test_what_nobody_means_is_refused(place: Path, words: list[str], said: str) -> None:
    before = contents(place)
    result = bench(*words)
    error = result.exception
    assert isinstance(error, BenchError | StoreError | ZooError | SystemExit), (error, result.output)
    assert isinstance(error, SystemExit) == ("hint: " in result.output)
    assert result.exit_code in {1, 2}, "1 of an error that the root says, which this way of calling does not see"
    text = f"{error} {result.output}"
    assert said in text
    assert "\n" not in str(error)
    if not isinstance(error, SystemExit):
        assert error.hint or "cannot be read" in text
    assert contents(place) == before
