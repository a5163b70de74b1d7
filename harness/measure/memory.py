"""Memory: what is free on a device, whether a model fits into it, and the peak of a block of code."""

import gc
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from harness.measure.estimate import MOMENTS, WEIGHT
from harness.utils.errors import BenchError
from harness.utils.memory import first_number, free_host_memory
from harness.utils.plugins import contain_exits
from results.records import Quantity
from zoo import Captioner, create_model
from zoo.width import count_parameters

_ROOT = Path("/")


def free_memory(device: torch.device, root: Path = _ROOT) -> int | None:
    """Free bytes on a GPU, or for a process under Linux and its control groups; None on other systems."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))
    return free_host_memory(root)


class LiveTensors(TorchDispatchMode):
    """Counts the bytes of tensors created within a block; `peak` is the maximum that exists at the same time.

    It is the same on every machine, unlike a process's resident memory, which depends on earlier allocations. It does
    not include workspaces of kernels.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak = 0
        self._alive: dict[int, int] = {}
        self._bytes = 0

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run an operator, and count the tensors that it creates."""
        input_storages = {
            leaf.untyped_storage().data_ptr() for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)
        }
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self._add(leaf.untyped_storage(), input_storages)
        return result

    def _add(self, storage: torch.UntypedStorage, input_storages: set[int]) -> None:
        pointer = storage.data_ptr()
        if (
            not pointer or pointer in input_storages or pointer in self._alive
        ):  # empty, or seen as a view of what was there
            return
        self._alive[pointer] = storage.nbytes()
        self._bytes += storage.nbytes()
        self.peak = max(self.peak, self._bytes)
        weakref.finalize(storage, self._remove, pointer)

    def _remove(self, pointer: int) -> None:
        self._bytes -= self._alive.pop(pointer, 0)


TRAINED = 2 * WEIGHT + MOMENTS  # bytes of a parameter while it is trained: itself, its gradient and its moments


def counted_parameters(name: str, **arguments: Any) -> int:
    """The number of parameters of a model that `create_model` would build; 0 if it cannot be counted."""
    try:
        with contain_exits():
            return count_parameters(name, **arguments)
    except Exception:  # building the model will report the error
        return 0


def require_memory(name: str, parameters: int, device: torch.device, bytes_each: int = WEIGHT) -> None:
    """BenchError where parameters of `bytes_each` bytes need more memory than is free on the device."""
    needed = parameters * bytes_each
    free = free_memory(device)
    if free is not None and needed > free:
        contents = "weights" if bytes_each == WEIGHT else "weights, gradients and moments"
        raise BenchError(
            f"{name} would have {parameters:,} parameters, whose {contents} take {needed / 1e9:,.1f} GB, "
            f"but {free / 1e9:,.1f} GB are free on {device}",
            "make it smaller, for example with --set size.d_model=512",
        )


def create_within_memory(name: str, **arguments: Any) -> Captioner:
    """`zoo.create_model` on the CPU; BenchError where the weights do not fit into its memory."""
    require_memory(name, counted_parameters(name, **arguments), torch.device("cpu"))
    return create_model(name, **arguments)


_PROC = Path("/proc/self")


class PeakMemory:
    """Measures peak memory within a block: `with PeakMemory(device) as peak: ...`.

    Blocks cannot be nested: the inner one would reset the outer one's peak.

    Attributes:
        host: resident memory of this process in MiB, or None with a reason. It includes what was resident before (the
            interpreter, torch, mapped files), and no child processes.
        device: memory of tensors on a CUDA device.
        reserved: device memory that torch holds, including its cache.
    """

    def __init__(self, device: torch.device | str = "cpu") -> None:
        self._device = torch.device(device)
        self.host = self.device = self.reserved = Quantity(None, reason="the block has not ended", unit="MiB")
        self._obstacle: str | None = None

    def __enter__(self) -> Self:
        try:
            # "5" resets the high-water mark of the resident set (Linux, proc(5)).
            (_PROC / "clear_refs").write_text("5", encoding="ascii")
        except OSError as error:
            self._obstacle = f"the kernel does not let this process reset its peak memory ({error.strerror})"
        if self._device.type == "cuda":
            # Leftovers of earlier work would count: models awaiting garbage collection, and torch's cache.
            gc.collect()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self._device)
        return self

    def __exit__(self, *_: object) -> None:
        host = first_number(_PROC / "status", r"^VmHWM:\s+(\d+) kB$")
        if self._obstacle is not None or host is None:
            self.host = Quantity(None, self._obstacle or "the kernel does not report VmHWM", "MiB")
        else:
            self.host = Quantity(host / 1024, unit="MiB")
        self.device = self._device_peak(torch.cuda.max_memory_allocated)
        self.reserved = self._device_peak(torch.cuda.max_memory_reserved)

    def quantities(self, phase: str) -> dict[str, Quantity]:
        """The peaks as costs of a phase: `train_peak_memory_host`, `train_peak_memory_device` ..."""
        peaks = {"host": self.host, "device": self.device, "reserved": self.reserved}
        return {f"{phase}_peak_memory_{where}": peak for where, peak in peaks.items()}

    def _device_peak(self, peak: Callable[[torch.device], int]) -> Quantity:
        if self._device.type != "cuda":
            return Quantity(None, reason="no CUDA device", unit="MiB")
        return Quantity(peak(self._device) / 2**20, unit="MiB")
