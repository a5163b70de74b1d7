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
    from harness.runner.worker import Ended
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
    """The end of a `RemoteReporter`'s channel: gathers messages, of a count only the last, and sends them together."""

    def __init__(self, mailbox: Any, key: str) -> None:
        self._mailbox, self._key = mailbox, key
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
        return self._mailbox.put.remote(self._key, messages)


class RunActor:
    """Executes one run after another; torch, the context and the scorers stay in memory between them.

    Args:
        folder: the driver's current folder, in which relative paths were meant.
        variables: of the driver's environment.
        threads: to compute with.
        pickled: the reference of the pickled `Shared` of all runs, in a list.
        mailbox: the actor of a `Mailbox`.

    Raises:
        BenchError: this node does not see the folder, or a plug-in cannot be loaded.
    """

    def __init__(
        self, folder: str, variables: Mapping[str, str], threads: int, pickled: list[Any], mailbox: Any
    ) -> None:
        os.environ.update(variables)
        try:
            os.chdir(folder)
        except OSError as error:
            raise BenchError(
                f"a node of the cluster has no folder {folder}: {error.strerror}",
                "run in a folder that all nodes share, with code, data and workspace under the same paths",
            ) from error

        import ray
        import torch

        from harness.metrics.evaluator import Evaluator
        from harness.runner.worker import Shared
        from harness.runner.worker_pool import enter_worker
        from results import Store

        torch.set_num_threads(threads)
        shared: Shared = pickle.loads(ray.get(pickled[0]))  # noqa: S301  # the driver made it
        self._shared = replace(shared, context=enter_worker(shared.context, 0))
        self._mailbox = mailbox
        self._opened = ExitStack()
        self._store = self._opened.enter_context(Store(shared.workspace.database))
        self._evaluator = self._opened.enter_context(Evaluator(settings=shared.evaluation))

    def ready(self) -> None:
        """Answers once this actor has been started."""

    def work(self, title: str, spec: RunSpec) -> Ended:
        """Execute a run; all that it said is in the mailbox before this returns."""
        import ray

        from harness.runner.worker import Worker
        from harness.runner.worker_pool import RemoteReporter

        outbox = Outbox(self._mailbox, spec.key)
        worker = Worker(self._shared, self._store, self._evaluator, RemoteReporter(cast(Any, outbox)))
        try:
            return worker.work(spec, title)
        finally:
            ray.get(outbox.flush())

    def end(self) -> None:
        """Close the store and the scorers."""
        self._opened.close()
