"""METEOR's formula and its process: equal to the jar's own scores, never waited for in vain, gone after closing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from harness.metrics.java import JavaError
from harness.metrics.meteor import METEOR, STATISTICS, MeteorProcess, meteor_jar

# Statistics as meteor-1.5.jar answers them to SCORE, and what it makes of them by EVAL: each and all together.
STATS = np.array(
    [
        [4, 4, 2, 2, 2, 2, 1, 1, *[0] * 12, 1, 3, 3],
        [9, 8, 4, 3, 3, 3, 2, 2, 1, 1, 0, 0, 1, 1, 0, 0, 0, 0, 1, 1, 3, 8, 8],
        [3, 3, 1, 1, 2, 2, 1, 1, *[0] * 12, 1, 3, 3],
        [0, 1, 0, 1, *[0] * 19],
    ],
    dtype=float,
)
BY_THE_JAR = [0.4535606800758789, 0.4412460786825538, 1.0, 0.0]
ALL_BY_THE_JAR = 0.4671392563842668


def gone(pid: int, *, within_s: float = 0) -> bool:
    deadline = time.monotonic() + within_s
    while True:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.05)


def test_formula_equals_the_jar():
    found = METEOR.statistics(STATS)
    assert found.per_image()["METEOR"] == pytest.approx(BY_THE_JAR, abs=1e-15)
    assert found.corpus()["METEOR"] == pytest.approx(ALL_BY_THE_JAR, abs=1e-15)


def test_no_segments_score_zero():
    assert METEOR.statistics(np.zeros((0, STATISTICS))).corpus() == {"METEOR": 0}


def test_statistics_follow_candidate_order_and_ignore_separators(evaluator):
    process = evaluator._meteor
    references = {1: ["a cat is here", "cats"], 2: ["a dog runs"]}
    straight = process.statistics(references, {1: "the cat is here", 2: "a dog"})
    turned = process.statistics(references, {2: "a dog", 1: "the cat is here"})
    assert straight.shape == (2, STATISTICS)
    assert (turned == straight[::-1]).all()
    dirty = {1: ["a cat ||| is here", "cats"], 2: ["a dog ||| runs"]}
    assert (process.statistics(dirty, {1: "the cat ||| is here", 2: "a dog"}) == straight).all()
    assert process.statistics(references, {}).shape == (0, STATISTICS)


def test_child_of_a_wrapper_script_ends_too(fake_java, tmp_path):
    inner = tmp_path / "inner.pid"
    process = MeteorProcess(fake_java(meteor=f"sh -c 'echo $$ >{inner}; exec cat >/dev/null'; true"), timeout_s=5)
    deadline = time.monotonic() + 60
    while not (inner.exists() and inner.read_text().strip()) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.close()
    assert gone(int(inner.read_text()), within_s=60)


def test_real_process_leaves_nothing(evaluator):
    before = sorted(meteor_jar().parent.iterdir())
    with closing(MeteorProcess(evaluator._find_java(), timeout_s=60)) as process:
        assert not gone(process._process.pid)
    assert gone(process._process.pid)
    assert sorted(meteor_jar().parent.iterdir()) == before
    assert not list(Path(tempfile.gettempdir()).glob(f"hsperfdata_*/{process._process.pid}"))


def test_closed_after_an_error(fake_java):
    process = MeteorProcess(fake_java(meteor="exec sleep 60"), timeout_s=0.3)
    with pytest.raises(JavaError, match=r"no answer within 0\.3 s"):
        process.statistics({1: ["a"]}, {1: "a"})
    assert gone(process._process.pid)


def test_more_input_than_the_pipe_holds_does_not_block(fake_java):
    process = MeteorProcess(fake_java(meteor="exec sleep 60"), timeout_s=0.5)
    words = "word " * 4000
    started = time.monotonic()
    with pytest.raises(JavaError, match="no answer"):
        process.statistics({i: [words] for i in range(50)}, dict.fromkeys(range(50), words))
    assert time.monotonic() - started < 30


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="kills by SIGKILL")
def test_ends_with_its_parent(fake_java):
    java = fake_java(meteor="exec cat >/dev/null")
    code = (
        "import sys, time; from pathlib import Path; from harness.metrics.meteor import MeteorProcess\n"
        "print(MeteorProcess(Path(sys.argv[1]), timeout_s=5)._process.pid, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, str(java)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout:
        child = int(parent.stdout.readline())
    assert not gone(child)
    parent.send_signal(signal.SIGKILL)
    parent.wait(60)
    assert gone(child, within_s=60)
