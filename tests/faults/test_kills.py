"""Commands that are killed at random moments, and then typed again: the same results, no orphan, no temporary file.

The whole campaign is 140 kills: `pytest -m campaign -n 0 -s tests/faults/test_kills.py`. `BENCH_KILLS=2` sends at most
two signals to each command, `BENCH_KILLS_SEED` chooses other moments.
"""

import base64
import gzip
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.data.scenes.dataset import ScenesConfig, prepare_scenes
from reports.html.report import MARKER
from tests.harness.benchmark.kills import scores_and_captions
from tests.harness.conftest import TINY, bench_command, bench_environment, bench_process, run_words

pytestmark = pytest.mark.campaign
GONE_S = 5.0
MODELS = "transformer_base,blind,human"
COUNTS = {signal.SIGKILL: 25, signal.SIGTERM: 5, signal.SIGINT: 5}  # signals that each of the four commands gets
ENDS = {
    signal.SIGKILL: {-signal.SIGKILL, 0},
    signal.SIGTERM: {143, -signal.SIGTERM, 0},
    signal.SIGINT: {130, -signal.SIGINT, 0},
}
"""Exit codes: by the signal; before the command could answer it; done before it came."""


@dataclass(frozen=True)
class Command:
    """A command to be killed.

    Attributes:
        words: of the command, with the folder that it works in.
        results: all that must not depend on kills, of that folder.
    """

    words: Callable[[Path], list[object]]
    results: Callable[[Path], object]


def _dump(file: Path) -> list[str]:
    with sqlite3.connect(file) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        lines = sorted(connection.iterdump())
    connection.close()
    return lines


def _pages(folder: Path) -> dict[str, bytes]:
    """The files of a report, without the minute in which it was written."""
    contents = {}
    for path in folder.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            if path.parent.name == "runs":
                content = _unpacked(content)
            contents[str(path.relative_to(folder))] = re.sub(rb"Written [^.]*\.", b"", content)
    return contents


def _unpacked(script: bytes) -> bytes:
    """The pages of runs that a script of a report holds as gzip in base64, between its quotation marks."""
    return gzip.decompress(base64.b64decode(script.split(b'"')[1]))


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Command]:
    """The commands by what they are called in the summary."""
    folder = tmp_path_factory.mktemp("undisturbed")
    data = prepare_scenes(folder / "data", ScenesConfig(train=16, val=4, test=6, nocaps_per_domain=1))

    def running(jobs: int) -> Command:
        def words(place: Path) -> list[object]:
            common = run_words(data, place, MODELS, TINY | {"schedule.stages.0.epochs": 2})
            return [*common, "--backbone", "filterbank", "--jobs", jobs]

        return Command(words, scores_and_captions)

    done = bench_process(*running(1).words(folder / "finished"))
    assert done.returncode == 0, done.stderr
    finished = folder / "finished"

    return {
        "run --jobs 1": running(1),
        "run --jobs 2": running(2),
        "report": Command(
            lambda place: ["report", "--workspace", finished, "--out", place / "pages"],
            lambda place: _pages(place / "pages"),
        ),
        "db merge": Command(
            lambda place: ["db", "merge", finished / "bench.sqlite", "--workspace", place],
            lambda place: _dump(place / "bench.sqlite"),
        ),
    }


def _orphans(mark: str) -> list[int]:
    """Processes whose environment holds the mark, but those that have ended."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def _hidden(folder: Path) -> list[str]:
    """Files that something was being written into; a report's own mark is none."""
    return [path.name for path in folder.rglob(".*") if path.name != MARKER]


def _end_of(words: list[object], number: int, after: float, temporary: Path) -> tuple[int, str, list[int]]:
    """Send a signal after some seconds; gives the exit code, what stderr got, and what is left after `GONE_S`."""
    mark = uuid.uuid4().hex
    environment = bench_environment(BENCH_KILL_MARK=mark, TMPDIR=str(temporary))
    said = temporary.parent / "stderr"
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a child inherits where it is ignored
    with said.open("w") as stderr:
        running = subprocess.Popen(
            bench_command(*words), env=environment, stdout=subprocess.DEVNULL, stderr=stderr, start_new_session=True
        )
    signal.signal(signal.SIGINT, before)
    try:
        running.wait(after)
    except subprocess.TimeoutExpired:
        if number == signal.SIGINT:
            os.killpg(running.pid, number)  # as a terminal does
        else:
            running.send_signal(number)
    code = running.wait(60)
    end = time.monotonic() + GONE_S
    while (left := _orphans(mark)) and time.monotonic() < end:
        time.sleep(0.1)
    for process in left:
        os.kill(process, signal.SIGKILL)
    return code, said.read_text(), left


@pytest.mark.parametrize("number", COUNTS, ids=lambda number: signal.Signals(number).name)
@pytest.mark.parametrize("name", ["run --jobs 1", "run --jobs 2", "report", "db merge"])
def test_kills_at_random_moments(
    commands: dict[str, Command], tmp_path: Path, name: str, number: signal.Signals
) -> None:
    command, draw = commands[name], random.Random(f"{os.environ.get('BENCH_KILLS_SEED', 0)} {name} {number}")
    kills = min(COUNTS[number], int(os.environ.get("BENCH_KILLS", COUNTS[number])))
    temporary, undisturbed, turn = tmp_path / "tmp", tmp_path / "undisturbed", 0
    temporary.mkdir()
    undisturbed.mkdir()
    started = time.monotonic()
    done = bench_process(*command.words(undisturbed), TMPDIR=str(temporary))
    took = time.monotonic() - started
    assert done.returncode == 0, done.stderr
    expected = command.results(undisturbed)
    usual = {path.name for path in temporary.iterdir()}  # torch's cache of compiled code

    ended: Counter[int] = Counter()
    tracebacks, orphans, differing, left_hidden = 0, 0, 0, []
    place = tmp_path / "place-0"
    place.mkdir()

    def differs(place: Path) -> bool:
        """Type the command again, to its end."""
        again = bench_process(*command.words(place), TMPDIR=str(temporary))
        assert again.returncode == 0, again.stderr
        left_hidden.extend(_hidden(place))
        return command.results(place) != expected

    while sum(ended.values()) - ended[0] < kills and turn < 3 * kills:
        turn += 1
        code, said, left = _end_of(command.words(place), number, draw.uniform(0, took), temporary)
        ended[code] += 1
        if "Traceback" in said:
            tracebacks += 1
            sys.stdout.write(said)
        orphans += len(left)
        if code == 0 or turn % 3 == 0:  # up to three kills in the same place, then to the end, and a new place
            differing += differs(place)
            place = tmp_path / f"place-{turn}"
            place.mkdir()
    differing += differs(place)
    forgotten = [path.name for path in temporary.iterdir() if path.name not in usual]
    sent = sum(ended.values()) - ended[0]
    sys.stdout.write(
        f"\n{name}, {number.name}: {sent} kills within {took:.1f} s, exit codes {dict(ended)}, "
        f"{differing} other results, {orphans} orphans after {GONE_S:g} s, {tracebacks} tracebacks, "
        f"{len(left_hidden)} temporary files beside results, {len(forgotten)} in TMPDIR\n"
    )
    assert set(ended) <= ENDS[number], ended
    assert (differing, orphans, tracebacks, left_hidden) == (0, 0, 0, [])
    if number != signal.SIGKILL:  # nothing can remove them after that; the system does
        assert forgotten == []
