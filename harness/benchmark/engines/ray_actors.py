"""What runs in the processes of a Ray cluster: one actor a slot, which does order after order, and their mailbox.

Nothing heavy is imported until an actor has the driver's environment, which torch reads once.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from harness.utils.errors import BenchError, ProcessLostError

if TYPE_CHECKING:
    from harness.benchmark.engines.reporting import Message

SEND_INTERVAL_S = 0.5
"""How often an actor tells its progress; each message is a call to another process."""


class Mailbox:
    """Keeps what all actors say until the driver takes it, so that the driver can wait instead of asking."""

    def __init__(self) -> None:
        self._messages: list[tuple[int, Message]] = []
        self._some = asyncio.Event()

    async def put(self, key: int, messages: list[Message]) -> None:
        """Messages of the order with this key, as they were sent."""
        self._messages += [(key, message) for message in messages]
        self._some.set()

    async def take(self) -> list[tuple[int, Message]]:
        """All messages since, as soon as there are any or `wake` was called."""
        await self._some.wait()
        self._some.clear()
        taken, self._messages = self._messages, []
        return taken

    async def wake(self) -> None:
        """Have `take` answer now."""
        self._some.set()


class Outbox:
    """The end of a `RemoteReporter`'s channel: gathers messages, of a count only the last, and sends them together.

    `key` is that of the order that they are of.
    """

    def __init__(self, mailbox: Any) -> None:
        self._mailbox, self.key = mailbox, 0
        self._messages: list[Message] = []
        self._sent = time.monotonic()

    def send(self, message: Message) -> None:
        """Keep a message, and send what is kept where the last time is long enough ago."""
        if message[0] == "reach" and self._messages and self._messages[-1][:2] == message[:2]:
            self._messages.pop()
        self._messages.append(message)
        if time.monotonic() - self._sent >= SEND_INTERVAL_S:
            self.flush()

    def flush(self) -> Any:
        """Send what is kept; gives the call's future."""
        self._sent = time.monotonic()
        messages, self._messages = self._messages, []
        return self._mailbox.put.remote(self.key, messages)


class WorkerActor:
    """Does one order after another; torch and all that its worker opened stay in memory between them.

    Args:
        folder: the driver's current folder, in which relative paths were meant.
        variables: of the driver's environment.
        threads: to compute with.
    """

    def __init__(self, folder: str, variables: Mapping[str, str], threads: int) -> None:
        os.environ.update(variables)
        self._folder, self._threads = folder, threads
        self._opened = ExitStack()
        self._work: Callable[[Any], Any] | None = None

    def ready(self) -> None:
        """Answers once this actor has been started."""

    def work(self, key: int, content: Any, given: list[Any]) -> Any:
        """Do an order; all that it said is in the mailbox before this returns.

        Args:
            given: the actor of a `Mailbox`, what opens a worker, and the reference of what all orders share, pickled.

        Raises:
            BenchError: this node does not see the driver's folder, or a plug-in cannot be loaded.
        """
        import ray

        if self._work is None:
            mailbox, opener, shared = given
            self._outbox = Outbox(mailbox)
            self._work = self._open(opener, ray.get(shared))
        self._outbox.key = key
        try:
            return self._work(content)
        except ProcessLostError:  # of a training on several devices; this process can train no more
            ray.get(self._outbox.flush())
            os._exit(1)  # Ray starts another in its place, which does the order again
        finally:
            ray.get(self._outbox.flush())

    def _open(self, opener: str, pickled: bytes) -> Callable[[Any], Any]:
        """Load all that stays in memory."""
        try:
            os.chdir(self._folder)
        except OSError as error:
            raise BenchError(
                f"a node of the cluster has no folder {self._folder}: {error.strerror}",
                "run in a folder that all nodes share, with code, data and workspace under the same paths",
            ) from error

        import torch

        from harness.benchmark.engines.crew import open_worker
        from harness.benchmark.engines.reporting import RemoteReporter

        torch.set_num_threads(self._threads)
        return self._opened.enter_context(open_worker(opener, pickled, 0, RemoteReporter(self._outbox)))

    def end(self) -> None:
        """Close what the worker opened."""
        self._opened.close()
