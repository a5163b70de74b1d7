"""State and energy of a GPU, by NVIDIA's management library (NVML)."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from results.errors import install_extra
from results.records import Quantity


class NvmlError(Exception):
    """NVML does not report a value for this device; the message is the reason."""


class NvmlDevice:
    """One device; every method raises NvmlError if the device does not report the value."""

    def __init__(self, library: Any, handle: Any, used_here: bool) -> None:
        self._library = library
        self._handle = handle
        self._used_here = used_here

    def energy(self) -> float:
        """Joules since the driver was loaded."""
        return float(self._ask("nvmlDeviceGetTotalEnergyConsumption")) / 1000

    def state(self) -> dict[str, Any]:
        """Clocks in MHz, temperature in degrees Celsius, power limit in W and other processes; None where unknown."""
        library = self._library
        queries = {
            "clock_mhz": ("nvmlDeviceGetClockInfo", library.NVML_CLOCK_SM),
            "memory_clock_mhz": ("nvmlDeviceGetClockInfo", library.NVML_CLOCK_MEM),
            "greatest_clock_mhz": ("nvmlDeviceGetMaxClockInfo", library.NVML_CLOCK_SM),
            "temperature_c": ("nvmlDeviceGetTemperature", library.NVML_TEMPERATURE_GPU),
        }
        values = {name: self._known(function, argument) for name, (function, argument) in queries.items()}
        limit = self._known("nvmlDeviceGetEnforcedPowerLimit")
        running = self._known("nvmlDeviceGetComputeRunningProcesses")
        # Only their number is compared: in a container, process ids differ.
        other_processes = None if running is None else max(len(running) - int(self._used_here), 0)
        return values | {"power_limit_w": None if limit is None else limit / 1000, "other_processes": other_processes}

    def _known(self, function: str, *arguments: Any) -> Any:
        try:
            return self._ask(function, *arguments)
        except NvmlError:
            return None

    def _ask(self, function: str, *arguments: Any) -> Any:
        try:
            return getattr(self._library, function)(self._handle, *arguments)
        except (self._library.NVMLError, self._library.NVMLLibraryMismatchError) as error:
            raise NvmlError(f"the device does not report it ({error})") from error


@contextmanager
def nvml_device(device: torch.device) -> Iterator[NvmlDevice]:
    """Open NVML within a block; NvmlError where there is no CUDA device or library, or it does not know the device."""
    if device.type != "cuda":
        raise NvmlError("no CUDA device")
    try:
        import pynvml
    except ImportError as error:
        raise NvmlError(f"nvidia-ml-py is not installed: {install_extra('energy')}") from error
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise NvmlError(f"NVML does not start ({error})") from error
    try:
        try:
            handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(device).uuid}")
        except pynvml.NVMLError as error:
            raise NvmlError(f"NVML does not know this device ({error})") from error
        index = torch.cuda.current_device() if str(device) == "cuda" else device.index
        # A process appears on a device with its first tensor, not with the first call of torch.cuda.
        yield NvmlDevice(pynvml, handle, torch._C._cuda_hasPrimaryContext(index))
    finally:
        pynvml.nvmlShutdown()


COSTS = {"energy_per_image": "J", "energy_per_image_above_idle": "J", "idle_power": "W"}


def measure_energy(
    work: Callable[[], object], images: int, device: torch.device, *, window_s: float
) -> dict[str, Quantity]:
    """Joules per captioned image: the total that the device draws meanwhile, and the part above its idle power.

    A device updates its counter about ten times a second, so windows of several seconds are needed. Idle power is
    measured first, over half a window in which this process leaves the device idle. The costs are NULL with the reason
    if there is no such counter.
    """
    if device.type == "cuda" and window_s <= 0:
        return not_measured(COSTS, "this preset leaves energy out (energy_seconds)")
    try:
        with nvml_device(device) as meter:
            torch.cuda.synchronize(device)
            idle_begin = meter.energy()
            begin = time.perf_counter()
            time.sleep(window_s / 2)
            idle = (meter.energy() - idle_begin) / (time.perf_counter() - begin)
            done = 0
            busy_begin = meter.energy()
            begin = time.perf_counter()
            while time.perf_counter() - begin < window_s:
                work()
                torch.cuda.synchronize(device)
                done += images
            joules = meter.energy() - busy_begin
            seconds = time.perf_counter() - begin
    except NvmlError as error:
        return not_measured(COSTS, str(error))
    values = (joules / done, (joules - idle * seconds) / done, idle)
    return {name: Quantity(value, unit=unit) for (name, unit), value in zip(COSTS.items(), values, strict=True)}


def not_measured(units: Mapping[str, str], reason: str) -> dict[str, Quantity]:
    """None for all of these costs, with one reason."""
    return {name: Quantity(None, reason, unit) for name, unit in units.items()}
