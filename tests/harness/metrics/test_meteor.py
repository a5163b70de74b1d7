"""METEOR's formula and its process: equal to the jar's own scores, never waited for in vain, gone after closing."""

import gzip
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from harness.metrics.java import JavaError, bundled_java, find_java, java_version
from harness.metrics.meteor import (
    STATISTICS,
    Mask,
    MeteorProcess,
    MeteorSession,
    ParaphraseTable,
    meteor,
    meteor_jar,
    meteor_paraphrases,
    paraphrase_table,
)

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
    found = meteor(STATS)
    assert found.per_image()["METEOR"] == pytest.approx(BY_THE_JAR, abs=1e-15)
    assert found.corpus()["METEOR"] == pytest.approx(ALL_BY_THE_JAR, abs=1e-15)


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
    with parent.stdout:
        child = int(parent.stdout.readline())
    assert not gone(child)
    parent.send_signal(signal.SIGKILL)
    parent.wait(60)
    assert gone(child, within_s=60)


PAIRS = [
    ("a car", "the vehicle"),
    ("a car", "an automobile"),
    ("us", "the states"),
    ("10pm", "ten o 'clock"),
    ("multi story", "tall"),
    ("t shirt", "top"),
    ("%", "per cent"),
    ("boy 's", "child 's"),
    ("caf\u00e9", "bar"),
    ("unheard", "of"),
]
REFERENCES = {
    1: ["the vehicle is in the states", "an automobile"],
    2: ["tall building with 5 per cent", "child 's top at ten o'clock"],
    3: ["of a bar"],
}
CANDIDATES = {1: "a car in the u.s.", 2: "multi-story building , 5% , boy's t-shirt at 10pm", 3: "a caf\u00e9"}


def write_table(path: Path, pairs: list[tuple[str, str]]) -> Path:
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(f"0.5\n{first}\n{second}\n" for first, second in pairs)
    return path


def write(table: ParaphraseTable, path: Path, occurring: Mask) -> None:
    with path.open("wb") as file:
        table.write(file, occurring)


def read_pairs(path: Path) -> list[tuple[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        lines = file.read().splitlines()
    return list(zip(lines[1::3], lines[2::3], strict=True))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_table(tmp_path / "paraphrase-en.gz", PAIRS)


def test_pairs_whose_words_occur_are_kept_in_order(source: Path, tmp_path: Path) -> None:
    table = ParaphraseTable.read(source)
    captions = [*CANDIDATES.values(), *(text for texts in REFERENCES.values() for text in texts)]
    write(table, tmp_path / "kept.gz", table.occurring(captions))
    assert read_pairs(tmp_path / "kept.gz") == PAIRS[:-1]
    write(table, tmp_path / "few.gz", table.occurring(["a car", "an automobile of us", "the vehicle"]))
    assert read_pairs(tmp_path / "few.gz") == PAIRS[:2]
    write(table, tmp_path / "none.gz", table.occurring(["zebra"]))
    assert read_pairs(tmp_path / "none.gz") == []


def test_statistics_are_those_of_the_whole_table(source: Path, tmp_path: Path) -> None:
    table = ParaphraseTable.read(source)
    captions = [*CANDIDATES.values(), *(text for texts in REFERENCES.values() for text in texts)]
    write(table, tmp_path / "kept.gz", table.occurring(captions))
    empty = write_table(tmp_path / "empty.gz", [])
    found = []
    for paraphrases in (source, tmp_path / "kept.gz", empty):
        with (
            paraphrases.open("rb") as file,
            closing(MeteorProcess(bundled_java(), timeout_s=60, paraphrases=file)) as process,
        ):
            found.append(process.statistics(REFERENCES, CANDIDATES))
    whole, kept, none = found
    assert (kept == whole).all()
    assert (none != whole).any(axis=1)[:2].all()  # paraphrases matter here


def test_captions_of_letters_alone_need_no_normalisation(source: Path) -> None:
    every = [word.decode() for word in paraphrase_table(meteor_paraphrases()).words]
    words = [word for word in every if re.fullmatch("[a-z]+", word)][::40]
    words += ["cannot", "dont", "gonna", "mr", "etc", "st", "no"]
    references = {start: [" ".join(words[start : start + 12])] for start in range(0, len(words), 6)} | {-1: ["a"]}
    candidates = {start: " ".join(words[start + 3 : start + 9]) for start in range(0, len(words), 6)} | {-1: ""}
    found = []
    for plain in (True, False):
        with (
            source.open("rb") as file,
            closing(MeteorProcess(bundled_java(), timeout_s=60, paraphrases=file, plain=plain)) as process,
        ):
            found.append(process.statistics(references, candidates))
    assert len(found[0]) > 150
    assert (found[0] == found[1]).all()


def test_the_cache_is_of_the_files_content_and_survives_damage(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    reads = []
    read = ParaphraseTable.read
    monkeypatch.setattr(ParaphraseTable, "read", lambda path: reads.append(path) or read(path))
    for expected in (1, 1):
        assert pairs_of(paraphrase_table(source), tmp_path) == PAIRS
        assert len(reads) == expected
    write_table(source, PAIRS[1:])
    for expected in (2, 2):
        assert pairs_of(paraphrase_table(source), tmp_path) == PAIRS[1:]
        assert len(reads) == expected
    for file in (tmp_path / "cache").rglob("*.npz"):
        file.write_bytes(file.read_bytes()[:100])
    assert pairs_of(paraphrase_table(source), tmp_path) == PAIRS[1:]
    assert len(reads) == 3


def pairs_of(table: ParaphraseTable, folder: Path) -> list[tuple[str, str]]:
    """All pairs, as the jar would read them."""
    write(table, folder / "all.gz", np.ones(len(table.words), bool))
    return read_pairs(folder / "all.gz")


def test_one_process_serves_until_words_are_new(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("harness.metrics.meteor.meteor_paraphrases", lambda: source)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    session = MeteorSession(bundled_java, timeout_s=60)
    session.prepare(["a car", "the vehicle zebra"])
    first = session.start(["a car"])
    assert session.start(["the vehicle", "zebras unknown to the table"]) is first
    assert session.statistics({1: ["the vehicle"]}, {1: "a car"})[0, 4:20].any()
    second = session.start(["an automobile"])
    assert second is not first
    assert session.start(["a car", "an automobile", "the vehicle"]) is second
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "paraphrase-en.gz"], (
        "no file for a kill to leave"
    )
    assert second.plain
    normalising = session.start(["a T-shirt"])
    assert not normalising.plain
    assert session.start(["a car"]) is normalising
    session.close()


@pytest.fixture
def no_java_set(monkeypatch, tmp_path):
    monkeypatch.delenv("BENCH_JAVA", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))


def script(path: Path, body: str) -> Path:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


@pytest.mark.usefixtures("no_java_set")
def test_bundled_runtime_serves_without_java_on_path():
    assert find_java() == bundled_java()
    assert "version" in java_version(find_java())


@pytest.mark.usefixtures("no_java_set")
def test_the_java_asked_for_is_never_replaced(tmp_path, monkeypatch):
    monkeypatch.setenv("BENCH_JAVA", str(script(tmp_path / "mine", "echo no JVM here >&2; exit 4")))
    with pytest.raises(JavaError, match=r"mine -version: .*status 4: no JVM here") as raised:
        find_java()
    assert "BENCH_JAVA" in (raised.value.hint or "")
    monkeypatch.setenv("BENCH_JAVA", str(script(tmp_path / "good", "echo version >&2")))
    assert find_java() == tmp_path / "good"


def test_reasons_of_a_java_that_does_not_run(tmp_path, monkeypatch):
    with pytest.raises(JavaError, match="cannot be started: No such file"):
        java_version(tmp_path / "absent")
    with pytest.raises(JavaError, match="cannot be started"):
        java_version(tmp_path)
    hanging = script(tmp_path / "hanging", "exec sleep 30")
    monkeypatch.setattr("harness.metrics.java.PROBE_TIMEOUT_S", 0.3)
    with pytest.raises(JavaError, match=r"no answer within 0\.3 s"):
        java_version(hanging)
