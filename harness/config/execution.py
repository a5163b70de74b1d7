"""What trains: how many devices and models at once, and whether kernels are compiled; recorded with every run."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch

from harness.config.cores import usable_cores
from harness.utils.errors import BenchError

AUTO = 0
MAX_JOBS = 4
"""Models at once where nobody says how many: each takes about a gigabyte of memory."""


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
        there = torch.cuda.device_count() if device.type == "cuda" else 1
        # Of a launch on several hosts, this one has a share; without RANK, all processes will be started here.
        here = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if "RANK" in os.environ else self.devices
        if here > there:
            raise BenchError(
                f"--devices {here}, but this machine has {there} of type {device.type}",
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
