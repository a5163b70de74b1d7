"""What runs in the processes of a Ray cluster: one actor a slot, which executes run after run, and their mailbox.

Nothing heavy is imported until an actor has the driver's environment, which torch reads once.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from harness.utils.errors import BenchError

if TYPE_CHECKING:
    from harness.runner.worker import Ended, Worker
    from results.records import RunSpec

SEND_INTERVAL_S = 0.5
"""How often an actor tells its progress; each message is a call to another process."""
Message = tuple[Any, ...]


class Mailbox:
    """Keeps what all actors say until the driver takes it, so that the driver can wait instead of asking."""

    def __init__(self) -> None:
        self._messages: list[tuple[str, Message]] = []
        self._some = asyncio.Event()

    async def put(self, key: str, messages: list[Message]) -> None:
        """Messages of the run with this key, in order."""
        self._messages += [(key, message) for message in messages]
        self._some.set()

    async def take(self) -> list[tuple[str, Message]]:
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

    `key` is that of the run that they are of.
    """

    def __init__(self, mailbox: Any) -> None:
        self._mailbox, self.key = mailbox, ""
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


class RunActor:
    """Executes one run after another; torch, the context and the scorers stay in memory between them.

    Args:
        folder: the driver's current folder, in which relative paths were meant.
        variables: of the driver's environment.
        threads: to compute with.
    """

    def __init__(self, folder: str, variables: Mapping[str, str], threads: int) -> None:
        os.environ.update(variables)
        self._folder, self._threads = folder, threads
        self._opened = ExitStack()
        self._worker: Worker | None = None

    def ready(self) -> None:
        """Answers once this actor has been started."""

    def work(self, title: str, spec: RunSpec, given: list[Any]) -> Ended:
        """Execute a run; all that it said is in the mailbox before this returns.

        Args:
            given: the reference of the pickled `Shared` of all runs, and the actor of a `Mailbox`.

        Raises:
            BenchError: this node does not see the driver's folder, or a plug-in cannot be loaded.
        """
        import ray

        if self._worker is None:
            self._outbox = Outbox(given[1])
            self._worker = self._open(ray.get(given[0]))
        self._outbox.key = spec.key
        try:
            return self._worker.work(spec, title)
        finally:
            ray.get(self._outbox.flush())

    def _open(self, pickled: bytes) -> Worker:
        """Load all that stays in memory."""
        try:
            os.chdir(self._folder)
        except OSError as error:
            raise BenchError(
                f"a node of the cluster has no folder {self._folder}: {error.strerror}",
                "run in a folder that all nodes share, with code, data and workspace under the same paths",
            ) from error

        import torch

        from harness.data.cache_storage import is_cached
        from harness.metrics.evaluator import Evaluator
        from harness.runner.worker import Shared, Worker
        from harness.runner.worker_pool import RemoteReporter, enter_worker
        from results import Store

        torch.set_num_threads(self._threads)
        shared: Shared = pickle.loads(pickled)  # noqa: S301  # the driver made it
        shared = replace(shared, context=enter_worker(shared.context, 0))
        if shared.context.data.features is not None:
            is_cached(shared.context.data.features.folder, shared.workspace.remote)
        return Worker(
            shared,
            self._opened.enter_context(Store(shared.workspace.database)),
            self._opened.enter_context(Evaluator(settings=shared.evaluation)),
            RemoteReporter(cast(Any, self._outbox)),
        )

    def end(self) -> None:
        """Close the store and the scorers."""
        self._opened.close()
