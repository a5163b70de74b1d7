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

import harness.metrics.meteor as meteor_module
from harness.metrics.java import JavaError, bundled_java, find_java, java_version
from harness.metrics.languages import METEOR_LANGUAGES
from harness.metrics.meteor import (
    STATISTICS,
    MeteorNormalizer,
    MeteorProcess,
    MeteorSession,
    Numbers,
    ParaphraseTable,
    meteor,
    meteor_jar,
    meteor_paraphrases,
    paraphrase_table,
    words_of,
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
    process = evaluator._meteors[0]
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


def write(table: ParaphraseTable, path: Path, kept: Numbers) -> None:
    with path.open("wb") as file:
        table.write(file, kept)


def read_pairs(path: Path) -> list[tuple[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        lines = file.read().splitlines()
    return list(zip(lines[1::3], lines[2::3], strict=True))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_table(tmp_path / "paraphrase-en.gz", PAIRS)


def test_pairs_are_kept_in_order_if_one_phrase_is_in_a_reference(source: Path, tmp_path: Path) -> None:
    table = ParaphraseTable.read(source)

    def kept(references: list[str], captions: list[str]) -> list[tuple[str, str]]:
        write(table, tmp_path / "kept.gz", table.matching(references, words_of([*references, *captions])))
        return read_pairs(tmp_path / "kept.gz")

    assert kept(["a car drives", "an automobile of us"], ["the vehicle"]) == PAIRS[:2]
    assert kept(["the vehicle"], ["a car"]) == PAIRS[:1], "in either direction"
    assert kept(["car a", "vehicle of the"], ["a car is the vehicle"]) == [], "all words, but no phrase"
    assert kept(["a", "car", "the", "vehicle"], []) == [], "no phrase goes beyond its reference"
    assert kept(["a car"], ["the bus"]) == []
    assert kept([], ["a car", "the vehicle"]) == []


def test_statistics_are_those_of_the_whole_table_normalised_each_time(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("harness.metrics.meteor.meteor_paraphrases", lambda: source)
    found = []
    for paraphrases in (source, write_table(tmp_path / "empty.gz", [])):
        with (
            paraphrases.open("rb") as file,
            closing(MeteorProcess(bundled_java(), timeout_s=60, paraphrases=file, normalise=True)) as process,
        ):
            found.append(process.statistics(REFERENCES, CANDIDATES))
    whole, none = found
    with closing(MeteorSession(bundled_java, timeout_s=60)) as session:
        assert (session.statistics(REFERENCES, CANDIDATES) == whole).all()
    assert (none != whole).any(axis=1)[:2].all()  # paraphrases matter here


ODD_WORDS = (
    "t-shirt st. u.s. boy's 'em 5,300 12:43 caf\u00e9 l'homme -lrb- & \u2019s 10\u00a0pm \u00a0 no. 5 a.m. "
    "... `` x--y \u2013 \u4e2d\u6587 \U0001f600"
)


@pytest.mark.parametrize("code", ["en", "fr"])
def test_captions_are_normalised_as_by_the_jar(source: Path, code: str) -> None:
    every = [word.decode() for word in paraphrase_table(meteor_paraphrases()).words]
    words = [word for word in every if re.fullmatch("[a-z]+", word)][::200]
    words += ["cannot", "dont", "gonna", "mr", "etc", "st", "no"]
    words += ODD_WORDS.split(" ")
    references = {start: [" ".join(words[start : start + 8])] for start in range(0, len(words), 4)} | {-1: ["a"]}
    candidates = {start: " ".join(words[start + 2 : start + 6]) for start in range(0, len(words), 4)} | {-1: ""}
    language = METEOR_LANGUAGES[code]
    with (
        source.open("rb") as file,
        closing(
            MeteorProcess(bundled_java(), timeout_s=60, paraphrases=file, normalise=True, language=language)
        ) as process,
    ):
        expected = process.statistics(references, candidates)
    with source.open("rb") as file:
        normal = MeteorNormalizer(language, timeout_s=60).normalise(
            [*candidates.values(), *(text for texts in references.values() for text in texts)], bundled_java()
        )
        asked = {image_id: [normal[text] for text in texts] for image_id, texts in references.items()}
        captions = {image_id: normal[text] for image_id, text in candidates.items()}
        with closing(MeteorProcess(bundled_java(), timeout_s=60, paraphrases=file, language=language)) as process:
            assert (process.statistics(asked, captions) == expected).all()
    assert len(expected) > 40
    assert any("t shirt" in text for text in normal.values())


def test_each_caption_is_normalised_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    run = meteor_module.run_java
    monkeypatch.setattr(
        meteor_module,
        "run_java",
        lambda *args, stdin, **options: asked.append(stdin) or run(*args, stdin=stdin, **options),
    )
    normalizer = MeteorNormalizer(METEOR_LANGUAGES["en"], timeout_s=60)
    java = bundled_java()
    assert normalizer.normalise(["a dog", "a t-shirt"], java) == {"a dog": "a dog", "a t-shirt": "a t shirt"}
    assert normalizer.normalise(["a t-shirt", "5,300 x--y"], java)["a t-shirt"] == "a t shirt"
    assert asked == [b"a t-shirt\n", b"5,300 x--y\n"]
    assert normalizer.normalise(["a dog"], Path("no-java")) == {"a dog": "a dog"}
    with pytest.raises(JavaError, match="normalizer"):
        normalizer.normalise(["a u.s. dog"], Path("no-java"))


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
    write(table, folder / "all.gz", np.arange(len(table.second.lengths)))
    return read_pairs(folder / "all.gz")


def test_one_process_serves_until_words_are_new(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("harness.metrics.meteor.meteor_paraphrases", lambda: source)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    session = MeteorSession(bundled_java, timeout_s=60)
    session.prepare(["a car"], ["the vehicle zebra"])
    assert session.statistics({1: ["a car"]}, {1: "the vehicle"})[0, 4:20].any()
    first = session._process
    session.statistics({1: ["a car"]}, {1: "zebras unknown to the table"})
    assert session._process is first
    assert session.statistics({1: ["an automobile"]}, {1: "a car"})[0, 4:20].any()
    second = session._process
    assert second is not first
    session.statistics({1: ["a car", "an automobile"]}, {1: "the vehicle"})
    assert session._process is second
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "paraphrase-en.gz"], (
        "no file for a kill to leave"
    )
    session.close()
    expecting = MeteorSession(bundled_java, timeout_s=60)
    expecting.expect(["vehicle", "the"])
    expecting.statistics({1: ["a car"]}, {1: "a car"})
    first = expecting._process
    assert expecting.statistics({1: ["a car"]}, {1: "the vehicle"})[0, 4:20].any()
    assert expecting._process is first
    expecting.close()


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
