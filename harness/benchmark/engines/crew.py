"""Orders, and those who do them: processes of this machine, or actors of a Ray cluster."""

from __future__ import annotations

import importlib
import pickle
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from harness.utils.progress import Reporter
from harness.utils.workspace import is_locked

LOST_WORKER = "WorkerDied"
"""The class of error of an order whose process, or machine, ended before it did."""


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """Work for one process.

    Attributes:
        name: begins the lines that are said of it.
        content: what the process is given; picklable.
        lock: a file that is locked while anyone does this work, where there is one.
    """

    name: str
    content: Any
    lock: Path | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an order has no answer: an exception, or the end of its process."""

    error_class: str
    reason: str

    def __str__(self) -> str:
        return f"{self.error_class}: {self.reason}"


class Crew(Protocol):
    """Workers that do orders side by side, each one after another.

    A worker is opened by a function, "module:function", which is called with what all orders share, the worker's place
    among them and a reporter. It gives a context manager of a function from an order's content to its answer.

    Attributes:
        at_work: orders that were handed out and have no answer yet, also after an interruption.
        release_s: how long an ended worker may take to let go of an order's lock.
    """

    at_work: list[Order]
    release_s: float

    def perform(self, orders: list[Order]) -> Generator[tuple[Order, Any], None, None]:
        """Do all orders; yields each with its answer, or a `Failure`, as it ends.

        The list empties meanwhile; whoever gets an answer may append further orders before asking for the next.
        """
        ...


def take(waiting: list[Order]) -> Order:
    """Take out the first order that no other command does, or else the first."""
    free = (place for place, order in enumerate(waiting) if order.lock is None or not is_locked(order.lock))
    return waiting.pop(next(free, 0))


def open_worker(
    opener: str, pickled: bytes, place: int, reporter: Reporter
) -> AbstractContextManager[Callable[[Any], Any]]:
    """Import and call what opens a worker; see `Crew`."""
    module, _, function = opener.partition(":")
    opened: AbstractContextManager[Callable[[Any], Any]] = getattr(importlib.import_module(module), function)(
        pickle.loads(pickled),  # noqa: S301  # the command made it
        place,
        reporter,
    )
    return opened
