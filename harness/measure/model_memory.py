"""Whether a model's parameters fit into the memory that is free; told before one of them is made.

Otherwise the machine swaps, or the system ends the process without a word.
"""

from __future__ import annotations

from typing import Any

import torch

from harness.measure.estimate import MOMENTS, WEIGHT
from harness.measure.free_memory import free_memory
from harness.utils.errors import BenchError
from harness.utils.plugins import contain_exits
from zoo import Captioner, create_model
from zoo.width import count_parameters

TRAINED = 2 * WEIGHT + MOMENTS
"""Bytes of a parameter while it is trained: itself, its gradient and its moments."""


def counted_parameters(name: str, **arguments: Any) -> int:
    """The parameters of a model that `create_model` would build; 0 where it cannot be built without making them."""
    try:
        with contain_exits():
            return count_parameters(name, **arguments)
    except Exception:  # building it says why
        return 0


def require_memory(name: str, parameters: int, device: torch.device, bytes_each: int = WEIGHT) -> None:
    """BenchError where so many parameters take more than the memory that is free on the device at this moment."""
    needed, free = parameters * bytes_each, free_memory(device)
    if free is not None and needed > free:
        what = "weights" if bytes_each == WEIGHT else "weights, gradients and moments"
        raise BenchError(
            f"{name} would have {parameters:,} parameters, whose {what} take {needed / 1e9:,.1f} GB, "
            f"and {free / 1e9:,.1f} GB are free on {device}",
            "make it smaller, as with --set size.d_model=512",
        )


def create_within_memory(name: str, **arguments: Any) -> Captioner:
    """`zoo.create_model`, on the host; BenchError where the weights do not fit into its memory."""
    require_memory(name, counted_parameters(name, **arguments), torch.device("cpu"))
    return create_model(name, **arguments)
