"""The environment: complete, storable, free of personal data, and never a reason to fail."""

import getpass
import importlib.metadata
import json
import platform
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
import torch

import harness
from harness.measure.environment import code_commit, describe_environment


def test_names_versions_and_machine() -> None:
    found = describe_environment("cpu")
    assert json.loads(json.dumps(found)) == found
    assert found["captionbench"] == harness.__version__
    assert found["python"] == platform.python_version()
    assert found["packages"]["torch"] == importlib.metadata.version("torch")
    assert found["packages"]["timm"]
    assert found["threads"] == torch.get_num_threads()
    assert found["cores"] >= found["usable_cores"] >= 1
    assert found["ram_gib"] is None or found["ram_gib"] > 0
    assert found["device"] == {"type": "cpu"}
    assert found["state"]["load_average"] >= 0


def test_holds_no_personal_data() -> None:
    text = json.dumps(describe_environment("cpu"))
    assert str(Path.home()) not in text or str(Path.home()) == "/"
    assert str(Path(harness.__file__).parent.parent) not in text
    assert len(socket.gethostname()) < 4 or socket.gethostname() not in text
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        return
    assert len(user) < 5 or user not in text


_NEEDS_GIT = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def _git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=Test", "-c", "user.email=test@example.invalid", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", "-C", str(folder), *identity, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@_NEEDS_GIT
def test_commit_of_a_checkout(tmp_path: Path) -> None:
    _git(tmp_path, "init", "-q")
    (tmp_path / "file").write_text("one", encoding="utf-8")
    _git(tmp_path, "add", "file")
    _git(tmp_path, "commit", "-q", "-m", "first")
    commit = _git(tmp_path, "rev-parse", "HEAD")
    assert code_commit(tmp_path) == commit
    (tmp_path / "untracked").touch()
    assert code_commit(tmp_path) == commit
    (tmp_path / "file").write_text("two", encoding="utf-8")
    assert code_commit(tmp_path) == f"{commit}-dirty"


@_NEEDS_GIT
def test_no_commit_outside_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _git(tmp_path, "init", "-q")
    assert code_commit(tmp_path) is None, "a repository without a commit"
    inside = tmp_path / "site-packages"
    inside.mkdir()
    assert code_commit(inside) is None, "installed inside somebody else's repository"
    monkeypatch.setenv("PATH", str(inside))
    assert code_commit(tmp_path) is None, "no git command"
