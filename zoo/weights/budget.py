"""Networks that are larger than the weights meant for them, refused while they are built: before memory is filled."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import safe_open
from torch import nn
from torch.nn.modules import module as hooks

from zoo.errors import ZooError

_TIMES = 2
"""A tied tensor is stored once, and registered twice."""
_MORE_TENSORS, _MORE_NUMBERS = 1_000, 2**24
"""Of parts that need no stored weights."""


@contextmanager
def no_larger_than(weights: Iterable[Path], device: str) -> Iterator[None]:
    """While it lasts, no module may be built of far more parameters, or numbers in them, than these weights have.

    Args:
        weights: .safetensors files, whose heads alone are read.
        device: the type of device that it is built on; parameters that are put elsewhere afterwards are not counted.

    Raises:
        ZooError: a network outgrows the weights.
        SafetensorError, OSError: of a head that cannot be read.
    """
    tensors, numbers = _stored(weights)
    built = {"tensors": 0, "numbers": 0}

    def count(_module: nn.Module, _name: str, parameter: nn.Parameter) -> None:
        if parameter.device.type != device:
            return
        built["tensors"] += 1
        built["numbers"] += parameter.numel()
        if built["tensors"] > _TIMES * tensors + _MORE_TENSORS or built["numbers"] > _TIMES * numbers + _MORE_NUMBERS:
            raise ZooError(
                "its settings describe a larger network than its weights, "
                f"which have {tensors:,} tensors of {numbers:,} numbers"
            )

    handle = hooks.register_module_parameter_registration_hook(count)
    try:
        yield
    finally:
        handle.remove()


def _stored(weights: Iterable[Path]) -> tuple[int, int]:
    """How many tensors files hold, and how many numbers."""
    tensors = numbers = 0
    for file in weights:
        with safe_open(file, "pt") as stored:
            for name in stored.keys():  # noqa: SIM118 - not a dictionary
                tensors += 1
                numbers += math.prod(stored.get_slice(name).get_shape())
    return tensors, numbers
