"""Locks between the commands of one workspace, and the user's cache."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.utils import atomic
from harness.utils.atomic import replacing, write_text
from harness.utils.errors import BenchError
from harness.utils.workspace import Workspace, is_locked, locked
from tests.harness.conftest import bench_environment

HOLDER = """
import sys
from pathlib import Path
from harness.utils.workspace import locked
with locked(Path(sys.argv[1]), lambda: None):
    print("holding", flush=True)
    sys.stdin.readline()
    Path(sys.argv[1]).with_name("done").touch()
"""


def test_a_name_that_results_cannot_hold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="not text in UTF-8"):
        Workspace(tmp_path / os.fsdecode(b"\xff")).create()
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    """A lock file that is not there yet, nor its folder."""
    return tmp_path / "run" / "lock"


@pytest.fixture
def holder(lock: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock until it reads a line."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "holding\n"
        yield process
        process.kill()


def refuse() -> None:
    raise AssertionError("waited for a lock that is free")


def test_a_free_lock_is_taken_at_once_and_let_go(lock: Path) -> None:
    for _ in range(2):
        with locked(lock, refuse):
            assert is_locked(lock)
        assert not is_locked(lock)


def test_a_held_lock_is_waited_for_and_said_once(lock: Path, holder: subprocess.Popen[str]) -> None:
    assert is_locked(lock)
    said: list[str] = []
    release = threading.Timer(0.2, holder.communicate, ["\n"])
    release.start()
    with locked(lock, lambda: said.append("waiting")):
        assert lock.with_name("done").exists(), "the other had not let go yet"
    release.join()
    assert said == ["waiting"]


def test_a_killed_process_leaves_no_lock(lock: Path, holder: subprocess.Popen[str]) -> None:
    assert is_locked(lock)
    holder.kill()
    holder.wait(10)
    assert not is_locked(lock)
    with locked(lock, refuse):
        pass


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    target = tmp_path / "file.json"
    write_text(target, "old")

    def fail_halfway() -> None:
        with replacing(target) as temporary:
            temporary.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_halfway()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_others_may_read_what_the_umask_lets_them(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        write_text(tmp_path / "new" / "file.json", "text")
    finally:
        os.umask(before)
    assert (tmp_path / "new" / "file.json").stat().st_mode & 0o777 == 0o644


def test_what_a_killed_process_began_is_removed(tmp_path: Path) -> None:
    killed = (
        "import os, signal, sys; from pathlib import Path; from harness.utils.atomic import replacing\n"
        "with replacing(Path(sys.argv[1])) as temporary:\n"
        "    temporary.write_text('half'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    ended = subprocess.run([sys.executable, "-c", killed, tmp_path / "file.json"], env=bench_environment(), check=False)
    assert ended.returncode == -signal.SIGKILL
    [left] = tmp_path.iterdir()
    elsewhere = tmp_path / f".file.json.00000000-{left.name.split('-')[-2]}-{'0' * 8}"  # of another machine
    elsewhere.touch()
    own = tmp_path / ".file.json.mine"
    own.touch()
    with replacing(tmp_path / "file.json") as temporary:
        temporary.write_text("whole")
        assert set(tmp_path.iterdir()) == {temporary, elsewhere, own}


def test_what_a_living_process_writes_stays(tmp_path: Path) -> None:
    with replacing(tmp_path / "first") as first:
        first.write_text("first")
        atomic._sweep.cache_clear()
        write_text(tmp_path / "second", "second")
    assert (tmp_path / "first").read_text() == "first"
