"""Other processes' work: seen where the kernel tells, never mistaken for one's own."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from harness.measure import cpu_contention as other_load
from harness.measure.latency import OtherLoad

CLOCK = 100


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose own clocks are in the test's hands: `stat` is the file, `moment` sets the others."""
    stat = tmp_path / "stat"
    monkeypatch.setattr(other_load.os, "sysconf", lambda name: CLOCK)  # noqa: ARG005
    return stat


def _moment(stat: Path, monkeypatch: pytest.MonkeyPatch, *, clock: float, machine: float, own: float) -> None:
    busy = int(machine * CLOCK)
    stat.write_text(f"cpu  {busy - 20} 10 4 999999 7 3 2 1 0 0\ncpu0 1 2 3\n", encoding="ascii")
    monkeypatch.setattr(other_load.time, "perf_counter", lambda: clock)
    monkeypatch.setattr(other_load.os, "times", lambda: (own, 0.0, 0.0, 0.0, 0.0))


def test_what_the_machine_did_beyond_this_process(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _moment(kernel, monkeypatch, clock=10.0, machine=100.0, own=5.0)
    with OtherLoad(stat=kernel) as load:
        _moment(kernel, monkeypatch, clock=14.0, machine=110.0, own=9.0)
    assert load.cores == pytest.approx((10 - 4) / 4)
    [reason] = load.noise()
    assert "1.5 of" in reason


def test_own_work_is_no_noise(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _moment(kernel, monkeypatch, clock=10.0, machine=100.0, own=5.0)
    with OtherLoad(stat=kernel) as load:
        _moment(kernel, monkeypatch, clock=14.0, machine=108.1, own=13.0)
    assert load.cores == pytest.approx(0.025)
    assert load.noise() == ()


def test_too_short_a_block_says_nothing(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _moment(kernel, monkeypatch, clock=10.0, machine=100.0, own=5.0)
    with OtherLoad(stat=kernel) as load:
        _moment(kernel, monkeypatch, clock=10.05, machine=100.2, own=5.0)
    assert load.cores is None
    assert load.noise() == ()


@pytest.mark.parametrize("content", [None, "", "cpu 1 2", "cpu a b c d e f g h"])
def test_a_kernel_that_does_not_tell(content: str | None, tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    if content is not None:
        stat.write_text(content, encoding="ascii")
    with OtherLoad(stat=stat) as load:
        pass
    assert load.cores is None


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_reads_this_kernel() -> None:
    with OtherLoad() as load:
        time.sleep(0.15)
    assert load.cores is not None
    assert load.cores >= 0
