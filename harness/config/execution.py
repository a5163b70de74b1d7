"""What trains: how many devices and models at once, and whether kernels are compiled; recorded with every run."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.utils.errors import BenchError

if TYPE_CHECKING:
    import torch

AUTO = 0
MAX_JOBS = 4
"""Models at once where nobody says how many: each takes about a gigabyte of memory."""


def usable_cores() -> int:
    """Cores that this process may run on, which may be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class ExecutionConfig:
    """How the work is done.

    Attributes:
        devices: that train one model together, each its share of every batch.
        jobs: models at once, each in a process of its own; `AUTO`: as many as there are cores for, one on a GPU.
        compiled: whether training passes go through `torch.compile`.
        plugins: as given on the command line; further processes need them too.
    """

    devices: int = 1
    jobs: int = 1
    compiled: bool = False
    plugins: tuple[str, ...] = ()

    def check(self, device: torch.device) -> None:
        """Refuse more devices than there are, and several models at once that each want several devices.

        Raises:
            BenchError: naming what there is, or what contradicts what.
        """
        if self.jobs > 1 and self.devices > 1:
            raise BenchError(
                f"--jobs {self.jobs} and --devices {self.devices} contradict each other",
                "--jobs trains models side by side, --devices one model on several devices: leave one of them out",
            )
        if self.devices == 1 or device.type == "cpu":
            return
        if device.index is not None:
            raise BenchError(
                f"--devices {self.devices} and --device {device} contradict each other",
                f"write --device {device.type}: the first {self.devices} devices train",
            )
        import torch  # here, since commands that answer at once read the number of cores from this module

        there = torch.cuda.device_count() if device.type == "cuda" else 1
        if self.devices > there:
            raise BenchError(
                f"--devices {self.devices}, but this machine has {there} of type {device.type}",
                f"write --devices {there}",
            )

    def jobs_for(self, models: int, device: torch.device) -> int:
        """How many of so many models train at once, at most; depends on the request and the machine alone."""
        if self.jobs == AUTO and (self.devices > 1 or device.type != "cpu"):
            return 1
        return max(min(self.jobs or min(usable_cores(), MAX_JOBS), models), 1)

    def record(self, device: torch.device, parts: int) -> dict[str, Any]:
        """For a run's environment; `parts` is how many passes a batch took in the end."""
        return {
            "devices": self.devices,
            "compile": f"{'on' if self.compiled else 'off'} ({device.type.upper()})",
            "passes_per_batch": parts,
        }
