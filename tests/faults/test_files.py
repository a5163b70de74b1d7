"""Pipes, devices and files beyond the limit where a file is read: told at once, by every command that names one."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from harness.benchmark.pretrained import Pretrained
from harness.data.regions.folder import RegionFolder
from harness.data.regions.regions import BadRegions
from harness.data.vocabularies import load_vocabulary
from harness.training.checkpoint import load_weights
from harness.utils.errors import BenchError
from harness.utils.files import absolute, expanded, shortened
from results.errors import StoreError
from results.store.store import Store
from tests.harness.conftest import bench

REFERENCES = {"images": [{"id": 1}], "annotations": [{"image_id": 1, "caption": "a red ball"}]}


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The current folder, with a pipe, a link to /dev/zero and references."""
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    Path("pipe.json").symlink_to("pipe")
    Path("zero").symlink_to("/dev/zero")
    Path("references.json").write_text(json.dumps(REFERENCES))
    return tmp_path


COMMANDS = (
    "evaluate {} --references references.json",
    "evaluate references.json --references {}",
    "data verify {}",
    "data nocaps {} references.json --out joined.json",
    "data features {}",
    "run --data {} --backbone filterbank",
    "regress --baseline {}",
    "run --tuned-from {}",
    "report --db {}",
    "db info --db {}",
    "db merge {} --workspace .",
    "import-weights expansionnet_v2 {} --vocabulary references.json",
    "import-weights expansionnet_v2 references.json --vocabulary {}",
    "prefetch spice --from {}",
)


@pytest.mark.parametrize(("file", "kind"), [("pipe", "a pipe"), ("zero", "a device")])
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.usefixtures("place")
def test_pipes_and_devices_are_named(command: str, file: str, kind: str) -> None:
    error = bench(*command.format(file).split()).exception
    assert isinstance(error, BenchError | StoreError), error
    assert f"it is {kind}, not a regular file" in str(error)
    assert file in str(error)


@pytest.mark.usefixtures("place")
def test_the_limit_and_how_to_raise_it_are_told() -> None:
    words = ("evaluate", "references.json", "--references", "references.json")
    error = bench(*words, env={"BENCH_MAX_FILE_GB": "1e-8"}).exception
    assert str(error).startswith("references.json cannot be read: it has more than 1e-08 GB")
    assert "BENCH_MAX_FILE_GB" in str(error)
    error = bench(*words, env={"BENCH_MAX_FILE_GB": "much"}).exception
    assert isinstance(error, StoreError)
    assert "BENCH_MAX_FILE_GB='much'" in str(error)


def test_arrays_that_are_devices_are_faults_of_their_image(tmp_path: Path) -> None:
    folder = tmp_path / "bu_att"
    folder.mkdir()
    (folder / "1.npz").symlink_to("/dev/zero")
    (folder / "2.npy").symlink_to("/dev/zero")
    os.mkfifo(folder / "3.npy")
    found = dict(RegionFolder(folder).read([1, 2, 3]))
    assert [("a device" in str(found[i]), "a pipe" in str(found[i])) for i in found] == [(1, 0), (1, 0), (0, 1)]
    assert not any(isinstance(each, BadRegions) for each in found.values())


def test_vocabularies_and_weights_are_regular_files(tmp_path: Path) -> None:
    import torch

    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BenchError, match="it is a pipe"):
        load_vocabulary(tmp_path / "pipe")
    with pytest.raises(BenchError, match="a pipe"):
        load_weights(torch.nn.Linear(1, 1), tmp_path / "pipe")


def test_folders_of_pretrained_models_hold_regular_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(BenchError, match=r"config\.json cannot be read: it is a pipe"):
        Pretrained("git/pretrained", str(tmp_path)).open(None)  # type: ignore[arg-type] # the files are looked at first


def test_databases_behind_links_are_opened(tmp_path: Path) -> None:
    Store(tmp_path / "bench.sqlite").close()
    (tmp_path / "link.sqlite").symlink_to("bench.sqlite")
    Store(tmp_path / "link.sqlite", read_only=True).close()
    with closing(sqlite3.connect(tmp_path / "bench.sqlite")) as connection:
        assert connection.execute("SELECT count(*) FROM runs").fetchone() == (0,)


def test_homes_of_nobody_and_loops_are_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.chdir(tmp_path)
    assert expanded("~/data") == Path("/home/me/data")
    with pytest.raises(BenchError, match="there is no user 'nobody-of-this-name'"):
        expanded("~nobody-of-this-name/data")
    (tmp_path / "loop").symlink_to("loop")
    assert absolute(tmp_path / "loop").name == "loop"
    for words in ("data verify {}", "run --backbone filterbank --data {}", "run --regions {} --workspace w"):
        for name in ("~nobody-of-this-name/data", str(tmp_path / "loop")):
            error = bench(*words.format(name).split()).exception
            assert isinstance(error, BenchError), error
            assert "\n" not in str(error)


def test_pictures_in_a_folder_that_results_cannot_name_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / os.fsdecode(b"\xff")
    folder.mkdir()
    image = {"imgid": 1, "filename": "1.png", "split": "train", "sentences": [{"raw": "A dog."}]}
    (folder / "dataset.json").write_text(json.dumps({"images": [image]}))
    words = ("--models", "human", "--data", folder, "--backbone", "filterbank", "--workspace", "w")
    for command in ("run", "plan"):
        assert "not text in UTF-8" in str(bench(command, *words).exception)
    assert not any(Path("w").rglob("*.npy"))


def test_long_values_are_cut_in_messages() -> None:
    assert shortened("x" * 100) == "x" * 100
    cut = shortened("a" * 500 + "b" * 500)
    assert len(cut) <= 100
    assert cut.startswith("aaa")
    assert cut.endswith("bbb")
