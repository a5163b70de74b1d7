"""Every option of every command with values that nobody means: one sentence, no traceback, no wait.

The options are asked of the command line itself, so that a new one is covered as soon as it is there.
"""

import io
import json
import os
import re
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from harness.cli.errors import explain, print_error
from harness.utils.errors import BenchError
from results import DatasetRecord, ImageRecord, Store
from results.errors import StoreError
from tests.faults.option_values import CLASSES, COMMANDS, LEGAL, commands, placed
from tests.harness.cli.conftest import IMAGES, outcome, planned
from tests.harness.conftest import root_command
from zoo.errors import ZooError

LIMIT_S = 60  # of one command. Where it is reached, something waits; the slowest takes some 5 s
LIMIT_MB = 1_000  # of memory that a command takes beyond what the process held
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Characters that a terminal obeys instead of showing them; of a name they are shown as escapes."""


def _options() -> Iterator[tuple[str, Any]]:
    """Each command with each of its parameters that takes a value, in the order of the help."""
    for path, command in commands():
        for parameter in command.params:
            if parameter.name != "help" and not getattr(parameter, "is_flag", False):
                yield path, parameter


def _cases() -> Iterator[Any]:
    for command, parameter in _options():
        shown = parameter.opts[0] if parameter.param_type_name == "option" else parameter.name.upper()
        for name in CLASSES:
            yield pytest.param(command, parameter, name, id=f"{command} {shown} {name}")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the regular files that the commands' words name."""
    folder = tmp_path_factory.mktemp("options")
    Image.new("RGB", (40, 30), "red").save(folder / "a.png")
    images = [{"id": i, "file_name": "a.png", "domain": "in-domain"} for i in (1, 2)]
    captions = [{"id": i, "image_id": i, "caption": "a red ball"} for i in (1, 2)]
    karpathy = [{"imgid": 1, "filename": "a.png", "split": "train", "sentences": [{"raw": "A red ball."}]}]
    contents: dict[str, Any] = {
        "references": {"images": images, "annotations": captions},
        "predictions": [{"image_id": i, "caption": "a red ball"} for i in (1, 2)],
        "karpathy": {"images": karpathy},
        "no-pictures": {"images": [karpathy[0] | {"filename": "absent.png"}]},
    }
    for name, content in contents.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    records = tuple(ImageRecord(i, f"{i}.png", "test", (f"a ball {i}", "one ball")) for i in IMAGES)
    for name, models in (("store", "ab"), ("other", "c")):
        (folder / name).mkdir()
        with Store(folder / name / "bench.sqlite") as store:
            store.record_dataset(DatasetRecord("scenes", "f" * 16, "/pictures", {"test": len(IMAGES)}, records))
            for points, model in enumerate(models):
                cell = planned(model, 0, "3")
                store.plan([cell])
                store.finish(cell.key, outcome(float(points), 0, 10.0, "EPYC", None, False))
    return folder


def _memory_mb(figure: str) -> float:
    """VmRSS or VmHWM, what this process holds, and the most it held since it was last reset."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1e3 for line in lines if line.startswith(figure))


@pytest.fixture
def place(files: Path, tmp_path: Path) -> Path:
    """A copy of these files, with what else the values name beside them."""
    folder = tmp_path / "place"
    shutil.copytree(files, folder)
    (folder / "folder").mkdir()
    os.mkfifo(folder / "pipe")
    (folder / "zero.npy").symlink_to("/dev/zero")
    (folder / "loop").symlink_to("loop")
    return folder


@contextmanager
def _limited(seconds: int) -> Iterator[None]:
    def _late(*_: object) -> None:
        pytest.fail(f"no answer within {seconds} s")

    before = signal.signal(signal.SIGALRM, _late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _answer(words: list[str]) -> tuple[int, str]:
    """Exit code and what `bench WORDS` prints; fails on what only the last resort would tell as a bug."""
    printed = io.StringIO()
    with _limited(LIMIT_S), redirect_stdout(printed), redirect_stderr(printed):
        code = _code(words)
    return code, printed.getvalue()


def _code(words: list[str]) -> int:
    try:
        root_command().main(args=words, prog_name="bench")
    except SystemExit as end:
        return int(end.code or 0)
    except (BenchError, StoreError, ZooError) as error:
        print_error(error, error)
        return 2
    except Exception as error:
        message, code = explain(error, [])
        if code != 2:
            raise
        print_error(message, error)
        return code
    return 0


@pytest.mark.parametrize(("command", "parameter", "name"), [*_cases()])
def test_values_that_nobody_means(
    monkeypatch: pytest.MonkeyPatch, place: Path, command: str, parameter: Any, name: str
) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "cache"))
    monkeypatch.setattr("harness.benchmark.pretrained.hub_is_reachable", lambda: False, raising=False)
    measured = True
    try:
        Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM
    except OSError:  # not Linux, or not all of it
        measured = False
    held = _memory_mb("VmRSS") if measured else 0.0
    code, said = _answer(placed(command, {parameter.name: CLASSES[name]}))
    assert (_memory_mb("VmHWM") - held if measured else 0.0) < LIMIT_MB
    option = parameter.opts[0] if parameter.param_type_name == "option" else parameter.name.upper()
    assert (code == 0) == (name in LEGAL.get(f"{command} {option}", set())), said[-500:]
    assert said
    assert not CONTROLS.search(said)
    assert len(said) < 12_000


def test_every_command_has_words() -> None:
    assert sorted(COMMANDS) == sorted({command for command, _ in _options()})
