"""Which Java is used, and what is said of one that does not work."""

from pathlib import Path

import pytest

from harness.metrics.java import JavaError, bundled_java, find_java, java_version


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
    broken = script(tmp_path / "mine", "echo no JVM here >&2; exit 4")
    monkeypatch.setenv("BENCH_JAVA", str(broken))
    with pytest.raises(JavaError, match="mine -version: the Java process ended with status 4: no JVM here") as raised:
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
