"""How busy other processes keep the processors while something is timed."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import TracebackType
from typing import Self

BUSY_CORES = 0.25
"""More cores than this at work for others make timings noisy."""
_STAT = Path("/proc/stat")
_BUSY = (0, 1, 2, 5, 6, 7)
"""Of the kernel's columns: user, nice, system, irq, softirq and steal."""


class OtherLoad:
    """Within a block, the cores that others kept at work on average: `with OtherLoad() as load: ...; load.cores`.

    None where the kernel does not tell. Work of this process's children counts as its own once they have ended.
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
        # The kernel counts in hundredths of a second: too short a block says nothing.
        self.cores = max(machine - own, 0.0) / elapsed if elapsed >= 0.1 else None

    def noise(self) -> tuple[str, ...]:
        """Why timings within the block are not to be believed; empty where others were quiet, or nobody can tell."""
        if self.cores is None or self.cores <= BUSY_CORES:
            return ()
        return (f"other processes kept {self.cores:.1f} of {os.cpu_count()} cores busy",)

    def _now(self) -> tuple[float, float, float] | None:
        """Seconds on the clock, and of processor time of the machine and of this process."""
        try:
            columns = self._stat.read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
            machine = sum(int(columns[column]) for column in _BUSY) / os.sysconf("SC_CLK_TCK")
        except (OSError, ValueError, IndexError, AttributeError):
            return None
        return time.perf_counter(), machine, sum(os.times()[:4])
