"""How runs are executed: devices a model and models at a time; recorded with every run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harness.utils.errors import BenchError

if TYPE_CHECKING:
    import torch

AUTO = 0
MAX_JOBS = 4  # most models at a time with `AUTO`: each takes about a gigabyte of memory


def usable_cores() -> int:
    """Cores that this process may run on, which may be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class ExecutionConfig:
    """How runs are executed: by how many `devices` each, `jobs` at a time, each in its own process.

    `device` is that of this machine, without a number any of its kind.
    `AUTO` jobs are one per usable core up to `MAX_JOBS`, one on a GPU; of runs on a cluster they are not known.
    `plugins` are as given on the command line, with `digests` by name: other ones execute no run that was planned with
    these. `accept_mixed` says whether a seed may join a row whose other seeds other versions of packages made; `log`
    names experiment trackers.
    """

    device: str = "cpu"
    devices: int = 1
    jobs: int = 1
    plugins: tuple[str, ...] = ()
    log: tuple[str, ...] = ()
    digests: Mapping[str, str] = field(default_factory=dict)
    accept_mixed: bool = False

    def check(self, device: torch.device) -> None:
        """BenchError for more devices than are available, or several models at a time on several devices each."""
        if self.jobs > 1 and self.devices > 1:
            raise BenchError(
                f"--jobs {self.jobs} and --devices {self.devices} contradict each other",
                "--jobs trains models side by side, --devices one model on several devices: leave out one of them",
            )
        if self.devices == 1 or device.type == "cpu":
            return
        if device.index is not None:
            raise BenchError(
                f"--devices {self.devices} and --device {device} contradict each other",
                f"write --device {device.type}: the first {self.devices} devices train",
            )
        import torch  # imported here: quick commands import this module for `usable_cores` alone

        available = torch.cuda.device_count() if device.type == "cuda" else 1
        # Of a launch on several hosts, this one has a share; without RANK, all processes will be started here.
        needed = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if "RANK" in os.environ else self.devices
        # A launcher may show each process a GPU of its own.
        shown_one = available == 1 and "RANK" in os.environ and "CUDA_VISIBLE_DEVICES" in os.environ
        if needed > available and not shown_one:
            raise BenchError(
                f"--devices {needed}, but this machine has {available} of type {device.type}",
                f"write --devices {available}",
            )

    def jobs_for(self, models: int, device: torch.device) -> int:
        """How many of `models` models train at a time; depends only on the options and the machine."""
        if self.jobs == AUTO and (self.devices > 1 or device.type != "cpu"):
            return 1
        return max(min(self.jobs or min(usable_cores(), MAX_JOBS), models), 1)

    def record(self, device: torch.device, parts: int) -> dict[str, Any]:
        """Entries of a run's environment; `parts` is how many passes a batch finally took."""
        products = {}
        if device.type == "cuda":
            from torch import backends

            products = {"tf32": backends.cuda.matmul.allow_tf32, "cudnn_benchmark": backends.cudnn.benchmark}
        return {"devices": self.devices, "passes_per_batch": parts, **products}
