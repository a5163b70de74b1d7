"""Errors that no command expects: one message, a log with the traceback, and an exit code that is never 0."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.cli import app as command_line
from harness.utils.errors import INTERRUPTED, BenchError
from harness.utils.plugins import load_plugin
from tests.harness.conftest import bench_command, bench_environment

Fail = Callable[[BaseException], tuple[int, str]]


class Strange(BaseException):
    """Not an Exception."""


@pytest.fixture
def fail(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Fail]:
    """`fail(error)` runs `bench break --db URL`, which raises the error; gives the exit code and what stderr got."""
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(command_line, "leave_broken_pipe", lambda: None)

    def failing(error: BaseException) -> tuple[int, str]:
        def break_(db: str) -> None:  # noqa: ARG001
            raise error

        module = SimpleNamespace(COMMAND=break_, EXAMPLES="")
        monkeypatch.setitem(sys.modules, "harness.cli.break", module)
        monkeypatch.setitem(command_line.COMMANDS, "break", "")
        monkeypatch.setattr(sys, "argv", ["bench", "break", "postgresql://me:secret@host/captions"])
        with pytest.raises(SystemExit) as ended:
            command_line.main()
        assert isinstance(ended.value.code, int)
        return ended.value.code, capsys.readouterr().err

    yield failing
    signal.signal(signal.SIGTERM, before)


def logs(folder: Path) -> list[str]:
    return [file.read_text() for file in (folder / "captionbench" / "logs").glob("*.log")]


@pytest.mark.parametrize("error", [ValueError("a [red] ball"), Strange("a [red] ball"), OSError("a [red] ball")])
def test_a_bug_is_one_message_and_a_log(tmp_path: Path, fail: Fail, error: BaseException) -> None:
    code, said = fail(error)
    assert code == 70
    assert f"{type(error).__name__}: a [red] ball\n" in said
    assert "`bench break postgresql://me:***@host/captions`" in said
    assert "`bench --debug break " in said
    assert "Traceback" not in said
    (log,) = logs(tmp_path)
    assert "Traceback" in log
    assert "test_last_resort.py" in log
    assert str(next((tmp_path / "captionbench" / "logs").iterdir())) in said
    assert "secret" not in log + said


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch, fail: Fail) -> None:
    monkeypatch.setenv("BENCH_DEBUG", "1")
    for error, code in ((ValueError("x"), 70), (BenchError("x", "y"), 2)):
        found, said = fail(error)
        assert found == code
        assert "Traceback (most recent call last)" in said
        assert said.index("Traceback") < said.index("error: ")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, "No space left", "/disk/file"), "/disk/file"),
        (PermissionError(errno.EACCES, "Permission denied", "/disk/file"), "error: /disk/file: Permission denied\n"),
        (
            OSError(errno.ENAMETOOLONG, "File name too long", "/disk/" + "x" * 300),
            "xxx is too long for the system\n",
        ),
        (OSError(errno.EMFILE, "Too many open files"), "Too many open files\n"),
        (MemoryError(), "memory"),
        (RecursionError("maximum recursion depth"), "is nested too deeply\n"),
    ],
)
def test_errors_of_the_system_have_sentences(tmp_path: Path, fail: Fail, error: BaseException, said: str) -> None:
    code, found = fail(error)
    assert code == 2
    assert said in found
    assert "hint: " in found
    assert "Traceback" not in found
    assert logs(tmp_path) == []


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_end_a_command_with_the_sentence(tmp_path: Path, number: int, expected: int) -> None:
    plugin = tmp_path / "waits.py"  # waits in the middle of a command, as training does
    plugin.write_text("import sys, time\nsys.stderr.write('ready\\n')\nsys.stderr.flush()\ntime.sleep(60)\n")
    command = bench_command("run", "--workspace", tmp_path / "w", "--plugin", plugin)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a child inherits where it is ignored
    with subprocess.Popen(command, env=bench_environment(), stderr=subprocess.PIPE, text=True) as process:
        signal.signal(signal.SIGINT, before)
        assert process.stderr is not None
        assert process.stderr.readline() == "ready\n"
        process.send_signal(number)
        assert process.stderr.read() == f"{INTERRUPTED}\n"
        assert process.wait(30) == expected


def test_ctrl_c_while_the_command_line_is_imported_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("import sys, time\nprint('ready', flush=True)\ntime.sleep(60)\n")
    environment = bench_environment()
    environment["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{environment['PYTHONPATH']}"
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a child inherits where it is ignored
    with subprocess.Popen(
        bench_command("--help"), env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        signal.signal(signal.SIGINT, before)
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == ""
        assert process.wait(30) == -signal.SIGINT


def test_a_plugins_error_is_no_bug_of_ours(tmp_path: Path, fail: Fail) -> None:
    plugin = tmp_path / "faulty.py"
    plugin.write_text("def work():\n    return {}['x']\n")
    load_plugin(str(plugin))
    with pytest.raises(KeyError) as caught:
        sys.modules["bench_plugin_faulty"].work()
    code, said = fail(caught.value)
    assert code == 2
    assert "faulty.py, line 2: KeyError: 'x'" in said
    assert "is a bug" not in said
    assert logs(tmp_path) == []


def test_closed_standard_output_is_told(tmp_path: Path) -> None:
    command = ["sh", "-c", 'exec "$@" >&-', "sh", *bench_command("--version")]
    environment = bench_environment(XDG_CACHE_HOME=str(tmp_path))
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: standard output is closed\nhint: ")
    assert logs(tmp_path) == []


def test_a_full_disk_behind_stdout_is_told(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            bench_command("--version"), env=bench_environment(XDG_CACHE_HOME=str(tmp_path)),
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith("error: the disk is full\nhint: ")


def test_a_reader_that_leaves_is_no_fault_of_a_plugin() -> None:
    """As `| head` does; rich ends the program by an exit of its own."""
    listing = subprocess.Popen(
        bench_command("models", "list", "*"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=bench_environment(),
    )
    assert listing.stdout is not None
    listing.stdout.close()
    _, said = listing.communicate(timeout=60)
    assert "plug-in" not in said
    assert "Traceback" not in said
