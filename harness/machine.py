"""What trains: how many devices, and whether kernels are compiled. No score depends on it, and every run records it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from harness.errors import BenchError


@dataclass(frozen=True, slots=True)
class Machine:
    """How the work is done.

    Attributes:
        devices: that train one model together, each its share of every batch.
        compiled: whether training passes go through `torch.compile`.
        plugins: as given on the command line; further processes need them too.
    """

    devices: int = 1
    compiled: bool = False
    plugins: tuple[str, ...] = ()

    def check(self, device: torch.device) -> None:
        """Refuse more devices than there are.

        Raises:
            BenchError: naming what there is.
        """
        if self.devices == 1 or device.type == "cpu":
            return
        if device.index is not None:
            raise BenchError(
                f"--devices {self.devices} and --device {device} contradict each other",
                f"write --device {device.type}: the first {self.devices} devices train",
            )
        there = torch.cuda.device_count() if device.type == "cuda" else 1
        if self.devices > there:
            raise BenchError(
                f"--devices {self.devices}, but this machine has {there} of type {device.type}",
                f"write --devices {there}",
            )

    def record(self, device: torch.device, parts: int) -> dict[str, Any]:
        """For a run's environment; `parts` is how many passes a batch took in the end."""
        return {
            "devices": self.devices,
            "compile": f"{'on' if self.compiled else 'off'} ({device.type.upper()})",
            "passes_per_batch": parts,
        }
