"""Free memory of a device, and what a piece of work takes of it."""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_ROOT = Path("/")
_FILES = (
    ("memory.max", "memory.current", "inactive_file"),
    (
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        "total_inactive_file",
    ),
)
"""Limit, use and what of it is given up on demand, of a control group of version 2 and 1."""


def free_memory(device: torch.device, root: Path = _ROOT) -> int | None:
    """Bytes that are free on an accelerator, or that Linux and its control groups leave a process; None elsewhere.

    Args:
        root: of the file system.
    """
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))
    found = _number(root / "proc/meminfo", r"^MemAvailable:\s+(\d+) kB$")
    return None if found is None else min(found * 1024, *_left_by_groups(root))


def _left_by_groups(root: Path) -> Iterator[int]:
    """What each control group of this process, and each that holds it, leaves of its limit; as in a Slurm job."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    for line in lines:
        number, controllers, place = line.split(":", 2)
        if number == "0":
            base, (limit, used, spare) = root / "sys/fs/cgroup", _FILES[0]
        elif "memory" in controllers.split(","):
            base, (limit, used, spare) = root / "sys/fs/cgroup/memory", _FILES[1]
        else:
            continue
        group = base / place.lstrip("/")
        for folder in (group, *group.parents):
            most, now = (_number(folder / name, r"^(\d+)$") for name in (limit, used))
            if most is not None and now is not None:
                yield max(most - now + (_number(folder / "memory.stat", rf"^{spare} (\d+)$") or 0), 0)
            if folder == base:
                break
    yield 2**63  # no limit


def _number(file: Path, pattern: str) -> int | None:
    try:
        found = re.search(pattern, file.read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) if found else None


class LiveTensors(TorchDispatchMode):
    """Counts the bytes of the tensors that are made within a block: `peak` is the most that lived at the same time.

    It is a property of the work, the same on every machine, where a process's resident memory depends on what was
    freed before. Memory that kernels take for themselves is not in it.
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
        """Run an operator, and take down what it made."""
        given = {leaf.untyped_storage().data_ptr() for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}
        made = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(made):
            if isinstance(leaf, Tensor):
                self._add(leaf.untyped_storage(), given)
        return made

    def _add(self, storage: torch.UntypedStorage, given: set[int]) -> None:
        place = storage.data_ptr()
        if not place or place in given or place in self._alive:  # empty, or seen as a view of what was there
            return
        self._alive[place] = storage.nbytes()
        self._bytes += storage.nbytes()
        self.peak = max(self.peak, self._bytes)
        weakref.finalize(storage, self._remove, place)

    def _remove(self, place: int) -> None:
        self._bytes -= self._alive.pop(place, 0)
