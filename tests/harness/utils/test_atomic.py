"""Files that are whole or absent."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.utils import atomic
from harness.utils.atomic import replacing, write_text
from tests.harness.conftest import bench_environment


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
