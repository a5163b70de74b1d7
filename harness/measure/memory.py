"""Peak memory of a block of code, on the host and on the device."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

import torch

from results.records import Quantity

_PROC = Path("/proc/self")
_MEBIBYTE = 2**20


class PeakMemory:
    """Measure the peak resident memory of this process, and the peaks on a CUDA device, within a block.

    `with PeakMemory(device) as peak: ...`, then `peak.host`, `peak.device` (tensors) and `peak.reserved` (device
    memory that torch holds, its cache included) are in MiB, or NULL with the reason. The host's number includes
    what was resident when the block began (the interpreter, torch, mapped files) and leaves child processes out.
    Blocks do not nest: the inner one would reset the outer one's peak, so it raises RuntimeError.
    """

    _active: ClassVar[bool] = False

    def __init__(self, device: torch.device | str = "cpu", *, proc: Path = _PROC) -> None:
        self._device = torch.device(device)
        self._proc = proc
        self.host = Quantity(None, reason="the block has not ended", unit="MiB")
        self.device = Quantity(None, reason="the block has not ended", unit="MiB")
        self.reserved = Quantity(None, reason="the block has not ended", unit="MiB")
        self._obstacle: str | None = None

    def __enter__(self) -> Self:
        if PeakMemory._active:
            raise RuntimeError("PeakMemory blocks do not nest: the inner one would reset the outer one's peak")
        PeakMemory._active = True
        try:
            # "5" resets the high-water mark of the resident set (Linux, proc(5)).
            (self._proc / "clear_refs").write_text("5", encoding="ascii")
        except OSError as error:
            self._obstacle = f"the kernel does not let this process reset its peak memory ({error.strerror})"
        if self._device.type == "cuda":
            # Leftovers of earlier work would count: models awaiting garbage collection, and torch's cache.
            gc.collect()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self._device)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        PeakMemory._active = False
        self.host = self._host_peak()
        self.device = self._device_peak(torch.cuda.max_memory_allocated)
        self.reserved = self._device_peak(torch.cuda.max_memory_reserved)

    def quantities(self, phase: str) -> dict[str, Quantity]:
        """The three as costs of a phase: `train_peak_memory_host`, `train_peak_memory_device` ..."""
        peaks = {"host": self.host, "device": self.device, "reserved": self.reserved}
        return {f"{phase}_peak_memory_{where}": peak for where, peak in peaks.items()}

    def _host_peak(self) -> Quantity:
        if self._obstacle is not None:
            return Quantity(None, reason=self._obstacle, unit="MiB")
        found = re.search(r"^VmHWM:\s+(\d+) kB$", (self._proc / "status").read_text(encoding="utf-8"), re.MULTILINE)
        if found is None:
            return Quantity(None, reason="the kernel does not report VmHWM", unit="MiB")
        return Quantity(int(found[1]) / 1024, unit="MiB")

    def _device_peak(self, peak: Callable[[torch.device], int]) -> Quantity:
        if self._device.type != "cuda":
            return Quantity(None, reason="no CUDA device", unit="MiB")
        return Quantity(peak(self._device) / _MEBIBYTE, unit="MiB")
