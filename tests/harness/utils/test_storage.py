"""Folders in a remote storage: whole or absent, fetched on demand, sent once."""

import hashlib
import json
from pathlib import Path

import pytest

from harness.utils.errors import BenchError
from harness.utils.storage import Storage, sha256_of
from harness.utils.workspace import Workspace


@pytest.fixture
def remote(tmp_path: Path) -> Storage:
    storage = Storage(f"file://{tmp_path / 'remote'}")
    storage.check()
    return storage


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run that trains."""
    folder = tmp_path / "here" / "runs" / "a-s0"
    for name, content in {
        "best.safetensors": "best",
        "run.json": "{}",
        "lock": "",
        ".run.json.1-2": "unfinished",
        "checkpoint/step-1/state.pt": "one",
        "checkpoint/.step-2/state.pt": "unfinished",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


def objects(tmp_path: Path) -> dict[str, str]:
    """The content of every object by its digest."""
    return {path.name: path.read_text() for path in (tmp_path / "remote").glob("*/**/" + 64 * "?")}


def test_what_was_pushed_is_fetched_elsewhere(remote: Storage, run: Path, tmp_path: Path) -> None:
    remote.push(run, "runs/a-s0")
    there = tmp_path / "there"
    assert remote.fetch(there, "runs/a-s0")
    found = {path.relative_to(there).as_posix(): path.read_text() for path in there.rglob("*") if path.is_file()}
    assert found == {"best.safetensors": "best", "run.json": "{}", "checkpoint/step-1/state.pt": "one"}
    assert not remote.fetch(there, "runs/b-s0"), "nothing of this name"
    assert all(hashlib.sha256(text.encode()).hexdigest() == digest for digest, text in objects(tmp_path).items())


def test_objects_of_old_checkpoints_go_and_others_stay(remote: Storage, run: Path, tmp_path: Path) -> None:
    remote.push(run, "runs/a-s0")
    (run / "best.safetensors").write_text("better")
    (run / "checkpoint/step-1/state.pt").write_text("two")
    remote.push(run, "runs/a-s0")
    assert sorted(objects(tmp_path).values()) == ["best", "better", "two", "{}"]
    remote.push(run, "runs/a-s0", lambda path: path.parts[0] != "checkpoint")
    assert sorted(objects(tmp_path).values()) == ["best", "better", "{}"]


def test_a_checkpoint_that_equals_another_runs_file_is_its_own(remote: Storage, run: Path, tmp_path: Path) -> None:
    remote.push(run, "runs/a-s0")
    (run / "checkpoint/step-1/state.pt").write_text("best")
    remote.push(run, "runs/b-s0")
    (run / "checkpoint/step-1/state.pt").write_text("later")
    remote.push(run, "runs/b-s0")
    assert remote.fetch(tmp_path / "there", "runs/a-s0")
    assert (tmp_path / "there" / "best.safetensors").read_text() == "best"
    assert (tmp_path / "there" / "checkpoint/step-1/state.pt").read_text() == "one"


def test_what_is_there_is_neither_sent_nor_fetched_again(
    monkeypatch: pytest.MonkeyPatch, remote: Storage, run: Path, tmp_path: Path
) -> None:
    remote.push(run, "runs/a-s0")
    sent: list[str] = []
    upload = Storage._upload
    monkeypatch.setattr(Storage, "_upload", lambda self, path, place: (sent.append(place), upload(self, path, place)))
    remote.push(run, "runs/a-s0")
    assert [Path(place).name for place in sent] == ["a-s0.json"]
    remote.fetch(tmp_path / "there", "runs/a-s0")
    before = {path: path.stat().st_ino for path in (tmp_path / "there").rglob("*") if path.is_file()}
    (tmp_path / "there" / "best.safetensors").write_text("damaged")
    remote.fetch(tmp_path / "there", "runs/a-s0")
    assert (tmp_path / "there" / "best.safetensors").read_text() == "best"
    assert {path: path.stat().st_ino for path in before if path.name != "best.safetensors"}.items() <= before.items()


def test_a_push_that_breaks_off_leaves_the_folder_as_it_was(
    monkeypatch: pytest.MonkeyPatch, remote: Storage, run: Path, tmp_path: Path
) -> None:
    remote.push(run, "runs/a-s0")
    (run / "best.safetensors").write_text("better")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(Storage, "_upload", fail)
        with pytest.raises(BenchError, match="No space left on device"):
            remote.push(run, "runs/a-s0")
    remote.fetch(tmp_path / "there", "runs/a-s0")
    assert (tmp_path / "there" / "best.safetensors").read_text() == "best"


def test_a_damaged_object_is_never_put_in_place(remote: Storage, run: Path, tmp_path: Path) -> None:
    remote.push(run, "runs/a-s0")
    digest = sha256_of(run / "best.safetensors")
    (tmp_path / "remote" / "objects" / digest[:2] / digest).write_text("wrong")
    with pytest.raises(BenchError, match=f"the object {digest} is damaged"):
        remote.fetch(tmp_path / "there", "runs/a-s0")
    assert not (tmp_path / "there" / "best.safetensors").exists()


def test_a_manifest_leads_nowhere_else(remote: Storage, run: Path, tmp_path: Path) -> None:
    remote.push(run, "runs/a-s0")
    manifest = tmp_path / "remote" / "manifests" / "runs" / "a-s0.json"
    entry = json.loads(manifest.read_text())["run.json"]
    for name in ("../outside", "/outside", "a/../../outside"):
        manifest.write_text(json.dumps({name: entry}))
        with pytest.raises(BenchError, match="outside of its folder"):
            remote.fetch(tmp_path / "there", "runs/a-s0")


@pytest.mark.parametrize("content", ["[1]", "{", '{"a": 1}', '{"a": {"bytes": 1, "sha256": "../../../secret"}}'])
def test_a_damaged_manifest_is_told_with_what_to_delete(
    remote: Storage, run: Path, tmp_path: Path, content: str
) -> None:
    remote.push(run, "runs/a-s0")
    (tmp_path / "remote" / "manifests" / "runs" / "a-s0.json").write_text(content)
    for use in (lambda: remote.fetch(tmp_path / "there", "runs/a-s0"), lambda: remote.push(run, "runs/a-s0")):
        with pytest.raises(BenchError, match=r"manifests/runs/a-s0\.json is damaged"):
            use()
    assert not (tmp_path / "there").exists()


def test_a_run_that_this_machine_has_begun_is_left_as_it_is(remote: Storage, run: Path, tmp_path: Path) -> None:
    remote.push(run, "runs/a-s0")
    here, there = Workspace(tmp_path / "here", None, remote.url), Workspace(tmp_path / "there", None, remote.url)
    (run / "best.safetensors").write_text("newer")
    here.fetch_run("a-s0")
    there.fetch_run("a-s0")
    assert (run / "best.safetensors").read_text() == "newer"
    assert (there.run_folder("a-s0") / "best.safetensors").read_text() == "best"
    Workspace(tmp_path / "alone").fetch_run("a-s0")
    assert not (tmp_path / "alone").exists()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("bucket", "is no URL of a folder"),
        ("s3://", "is no URL of a folder"),
        ("nothing://bucket", "Protocol not known: nothing"),
        ("file:///proc/nowhere", "--storage file:///proc/nowhere: "),
        ("file://remote/folder", "wherever the command is typed"),
        ("file://localhost/folder", "wherever the command is typed"),
        ("memory://folder", "keeps nothing"),
    ],
)
def test_a_storage_that_cannot_be_used_is_told_before_any_work(url: str, said: str) -> None:
    with pytest.raises(BenchError, match=said) as refused:
        Storage(url).check()
    assert refused.value.hint
