"""Energy of a device by its own counter, with and without its idle power."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from harness.measure.nvml import NvmlError, nvml_device
from results.records import Quantity

COSTS = {"energy_per_image": "J", "energy_per_image_above_idle": "J", "idle_power": "W"}
"""Names of the stored costs, with units."""


def measure_energy(
    work: Callable[[], None], images: int, device: torch.device, *, window_s: float
) -> dict[str, Quantity]:
    """Joules per captioned image: the total that the device draws meanwhile, and the part above its idle power.

    A device updates its counter about ten times a second, so windows of several seconds are needed. Idle power is
    measured first, over half a window in which this process leaves the device idle.

    Args:
        work: captions one batch.
        images: in that batch.
        device: where it runs.
        window_s: seconds for which the batch is repeated.

    Returns:
        The costs of `COSTS`; NULL with the reason if there is no such counter.
    """
    if device.type == "cuda" and window_s <= 0:
        return missing_energy("this preset leaves energy out (energy_seconds)")
    try:
        with nvml_device(device) as meter:
            torch.cuda.synchronize(device)
            idle_begin, begin = meter.energy(), time.perf_counter()
            time.sleep(window_s / 2)
            idle = (meter.energy() - idle_begin) / (time.perf_counter() - begin)
            done, busy_begin, begin = 0, meter.energy(), time.perf_counter()
            while time.perf_counter() - begin < window_s:
                work()
                torch.cuda.synchronize(device)
                done += images
            joules, seconds = meter.energy() - busy_begin, time.perf_counter() - begin
    except NvmlError as error:
        return missing_energy(str(error))
    values = (joules / done, (joules - idle * seconds) / done, idle)
    return {name: Quantity(value, unit=unit) for (name, unit), value in zip(COSTS.items(), values, strict=True)}


def missing_energy(reason: str) -> dict[str, Quantity]:
    """NULL for every cost of `COSTS`."""
    return {name: Quantity(None, reason, unit) for name, unit in COSTS.items()}
