"""CPU load of other processes during a measurement."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import TracebackType
from typing import Self

BUSY_CORES = 0.25
"""Timings are noisy if other processes keep more cores busy than this."""
_STAT = Path("/proc/stat")
_BUSY = (0, 1, 2, 5, 6, 7)
"""Of the kernel's columns: user, nice, system, irq, softirq and steal."""


class OtherLoad:
    """Mean number of cores that other processes used within a block: `with OtherLoad() as load: ...; load.cores`.

    None if the kernel does not report it. Children count as this process once they have ended.
    """

    def __init__(self, *, stat: Path = _STAT) -> None:
        self._stat = stat
        self.cores: float | None = None

    def __enter__(self) -> Self:
        self._begin = self._now()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end = self._now()
        if self._begin is None or end is None:
            return
        elapsed, machine, own = (after - before for before, after in zip(self._begin, end, strict=True))
        # The kernel counts in hundredths of a second, too coarse for a shorter block.
        self.cores = max(machine - own, 0.0) / elapsed if elapsed >= 0.1 else None

    def noise(self) -> tuple[str, ...]:
        """Why timings within the block are unreliable; empty if there was little other load, or it is unknown."""
        if self.cores is None or self.cores <= BUSY_CORES:
            return ()
        return (f"other processes kept {self.cores:.1f} of {os.cpu_count()} cores busy",)

    def _now(self) -> tuple[float, float, float] | None:
        """Wall-clock seconds, and seconds of processor time of the machine and of this process."""
        try:
            columns = self._stat.read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
            machine = sum(int(columns[column]) for column in _BUSY) / os.sysconf("SC_CLK_TCK")
        except (OSError, ValueError, IndexError, AttributeError):
            return None
        return time.perf_counter(), machine, sum(os.times()[:4])
