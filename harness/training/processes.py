"""The processes that train one model together: this one alone, or one a device (`harness.training.several`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from torch import nn
from torch.nn import Parameter

T = TypeVar("T")


class Processes(Protocol):
    """What the training loop asks of the others; every process must ask the same things in the same order."""

    rank: int
    """This one's number; 0 validates, saves and speaks for all."""
    count: int

    def total(self, values: Sequence[float]) -> list[float]:
        """The sums of each process's values."""
        ...

    def add_gradients(self, parameters: Iterable[Parameter]) -> None:
        """Replace each gradient by the sum of all processes' gradients, where any of them has one."""
        ...

    def of_first(self, value: T) -> T:
        """The first process's value, plain data."""
        ...

    def of_all(self, value: T) -> list[T]:
        """Each process's value, plain data."""
        ...

    def share_weights(self, model: nn.Module) -> None:
        """Give every process the first one's weights."""
        ...


class Alone:
    """One process."""

    rank, count = 0, 1

    def total(self, values: Sequence[float]) -> list[float]:
        """See `Processes.total`."""
        return list(values)

    def add_gradients(self, parameters: Iterable[Parameter]) -> None:
        """There are no others."""

    def of_first(self, value: T) -> T:
        """See `Processes.of_first`."""
        return value

    def of_all(self, value: T) -> list[T]:
        """See `Processes.of_all`."""
        return [value]

    def share_weights(self, model: nn.Module) -> None:
        """There are no others."""
