"""What a worker of any engine does before its first order: plug-ins, its device, its share of the threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch

from harness.benchmark.context import RunContext
from harness.utils.plugins import load_plugins


def enter_worker(context: RunContext, place: int) -> RunContext:
    """Load the plug-ins in a worker process; gives the context on the device of its place."""
    execution = context.execution
    load_plugins(execution.config.plugins)
    return replace(context, execution=replace(execution, device=device_at(execution.device, place)))


def device_at(device: torch.device, place: int) -> torch.device:
    """One GPU after another, where none was named."""
    if device.type != "cuda" or device.index is not None:
        return device
    return torch.device("cuda", place % torch.cuda.device_count())


@contextmanager
def limit_threads(jobs: int) -> Iterator[None]:
    """Divide the CPU threads between so many jobs for a while; results may depend on their number."""
    before = torch.get_num_threads()
    torch.set_num_threads(max(before // jobs, 1))
    try:
        yield
    finally:
        torch.set_num_threads(before)
