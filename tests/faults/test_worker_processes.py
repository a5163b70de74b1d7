"""Worker processes and signals while they are started: none outlives its parent, none says anything of an interrupt."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.utils.errors import INTERRUPTED
from tests.harness.conftest import bench_environment

GONE_S = 5.0
IMPORTS = """
import os, sys, time
sys.stdout.write(f"{os.getpid()}\\n")
sys.stdout.flush()
time.sleep(60)  # as importing torch takes its time
"""
STARTS = """
import sys
from harness.cli.errors import print_interrupted
from harness.utils.processes import make_worker, starting_worker
from harness.utils.signals import end_on_sigterm
end_on_sigterm()
try:
    with starting_worker():
        worker = make_worker("imports:work", bytes(8_000_000))
        sys.stdout.write("starting\\n")
        sys.stdout.flush()
        worker.start()
    worker.join()
except KeyboardInterrupt as interrupt:
    worker.kill()
    worker.join()
    sys.exit(print_interrupted(interrupt))
"""


def _start(folder: Path) -> subprocess.Popen[str]:
    """A process that starts a worker, which imports for a minute; it says "starting", and the worker its id."""
    (folder / "imports.py").write_text(IMPORTS)
    environment = bench_environment()
    environment["PYTHONPATH"] += os.pathsep + str(folder)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a child inherits where it is ignored
    try:
        return subprocess.Popen(
            [sys.executable, "-c", STARTS], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
    finally:
        signal.signal(signal.SIGINT, before)


def _is_gone(process: int) -> bool:
    """Whether a process that is not ours ended within `GONE_S`."""
    end = time.monotonic() + GONE_S
    while time.monotonic() < end:
        try:
            os.kill(process, 0)
            if Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True  # nobody reaps it here
        except (OSError, FileNotFoundError):
            return True
        time.sleep(0.05)
    return False


def _line(running: subprocess.Popen[str]) -> str:
    assert running.stdout is not None
    return running.stdout.readline().strip()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="tells processes apart by /proc")
def test_a_worker_that_still_imports_ends_with_its_parent(tmp_path: Path) -> None:
    with _start(tmp_path) as parent:
        assert _line(parent) == "starting"
        worker = int(_line(parent))
        assert Path(f"/proc/{worker}").exists()
        parent.kill()
        assert _is_gone(worker)
        assert parent.stderr is not None
        assert parent.stderr.read() == ""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("moment", ["starting", "importing"])
def test_a_signal_while_a_worker_starts_is_one_sentence(tmp_path: Path, number: int, code: int, moment: str) -> None:
    with _start(tmp_path) as parent:
        assert _line(parent) == "starting"
        if moment == "importing":
            _line(parent)
        os.killpg(parent.pid, number)  # as a terminal does, and a scheduler
        assert parent.stderr is not None
        assert parent.stderr.read() == f"{INTERRUPTED}\n"
        assert parent.wait(GONE_S) == code
