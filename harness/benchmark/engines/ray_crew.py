"""A crew of actors of a Ray cluster: the driver hands out orders, shows what their actors say, and waits."""

from __future__ import annotations

import os
import pickle
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from harness.benchmark.engines.crew import LOST_WORKER, Failure, Order, take
from harness.benchmark.engines.processes import JOIN_TIMEOUT_S
from harness.benchmark.engines.ray_actors import Mailbox, WorkerActor
from harness.benchmark.engines.reporting import ReporterProxy
from harness.utils.progress import Reporter
from zoo.errors import first_line

RETRIES = 3
"""How often Ray repeats an order whose process or node died."""
_FORWARDED = ("AWS_", "BENCH_", "GOOGLE_", "HF_", "OMP_", "PG", "XDG_CACHE_HOME")
"""Beginnings of the names of variables that actors get from the driver."""


@dataclass(slots=True)
class _Slot:
    """One actor, and the order that it does, by key; None before its first, and at its end."""

    actor: Any
    order: Order | None = None
    key: int = 0
    ending: bool = False


class RayCrew:
    """See `harness.benchmark.engines.crew.Crew`.

    Args:
        ray: the module, connected.
        slots: actors at most.
        options: of an actor: its resources.
        opener: of a worker.
        shared: by all orders; picklable.
    """

    release_s = 5.0  # a killed actor's process ends a moment later

    def __init__(
        self, ray: Any, slots: int, options: dict[str, Any], opener: str, shared: Any, reporter: Reporter
    ) -> None:
        self.at_work: list[Order] = []
        self._ray, self._slots, self._reporter = ray, slots, reporter
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        self._mailbox = ray.remote(Mailbox).options(num_cpus=0, scheduling_strategy=here).remote()
        variables = {name: value for name, value in os.environ.items() if name.startswith(_FORWARDED)}
        threads = max(int(options["num_cpus"]), 1)
        self._made_with = (str(Path.cwd()), variables, threads)
        # In a list actors get the reference, not the bytes. Not given to their constructor: Ray warns of such ones.
        self._given = [self._mailbox, opener, ray.put(pickle.dumps(shared))]
        self._actors = ray.remote(WorkerActor).options(max_restarts=-1, max_task_retries=RETRIES, **options)
        self._mail = self._mailbox.take.remote()
        self._pending: dict[Any, _Slot] = {}
        self._shown: dict[int, ReporterProxy] = {}
        self._keys = count(1)

    def perform(self, orders: list[Order]) -> Generator[tuple[Order, Any], None, None]:
        """See `Crew.perform`; no more actors are started than there are orders."""
        try:
            self._start_actors(orders)
            while self._pending:
                # Only the closing of workers has a limit, and no order depends on it.
                limit = JOIN_TIMEOUT_S if all(slot.ending for slot in self._pending.values()) else None
                done, _ = self._ray.wait([*self._pending, self._mail], num_returns=1, timeout=limit)
                if not done:
                    break
                self._read_mail(all_of_it=done != [self._mail])
                for future in done:
                    if (slot_done := self._pending.pop(future, None)) is not None:
                        yield from self._answered(slot_done, future, orders)
                self._start_actors(orders)
        finally:
            self._kill_all()
            self._ray.kill(self._mailbox)

    def _start_actors(self, orders: list[Order]) -> None:
        """As many as there are orders for, beside those that are starting."""
        starting = sum(slot.order is None and not slot.ending for slot in self._pending.values())
        at_work = sum(not slot.ending for slot in self._pending.values())
        for _ in range(min(len(orders) - starting, self._slots - at_work)):
            slot = _Slot(self._actors.remote(*self._made_with))
            self._pending[slot.actor.ready.remote()] = slot

    def _answered(self, slot: _Slot, future: Any, orders: list[Order]) -> Iterator[tuple[Order, Any]]:
        """What an actor's answer means: that it is ready, that its order ended, that it is lost, or has closed all."""
        if slot.ending:
            self._ray.kill(slot.actor)
            return
        order, slot.order = slot.order, None
        errors, problem = self._ray.exceptions, None
        ended: Any = None
        try:
            ended = self._ray.get(future)
        except errors.RayTaskError as error:  # raised in the actor, which can go on
            problem = Failure(type(error.cause).__name__, str(error.cause))
        except errors.RayError as error:
            problem = Failure(LOST_WORKER, f"its process or node ended {1 + RETRIES} times: {first_line(error)}")
        if order is not None:
            self._shown.pop(slot.key).close()
            self.at_work.remove(order)
            yield order, ended if problem is None else problem
        elif problem is not None:
            self._slots -= 1  # a further one would not start either
            while orders and not self._pending:  # no other actor is there, or will be
                yield orders.pop(0), problem
            return
        if orders:
            self._submit(slot, orders)
        else:
            slot.ending = True
            self._pending[slot.actor.end.remote()] = slot

    def _submit(self, slot: _Slot, orders: list[Order]) -> None:
        order, slot.key = take(orders), next(self._keys)
        proxy = self._shown[slot.key] = ReporterProxy(self._reporter)
        proxy.name, slot.order = order.name, order
        self.at_work.append(order)
        self._pending[slot.actor.work.remote(slot.key, order.content, self._given)] = slot

    def _read_mail(self, *, all_of_it: bool) -> None:
        """Show what actors said; all of it where an order has ended, whose last words come before the next one's."""
        if all_of_it:
            self._mailbox.wake.remote()
        for key, message in self._ray.get(self._mail):
            if key in self._shown:
                self._shown[key].show(message)
        self._mail = self._mailbox.take.remote()

    def _kill_all(self) -> None:
        for slot in self._pending.values():
            self._ray.kill(slot.actor)
        self._pending.clear()
        for proxy in self._shown.values():
            proxy.close()
        self._shown.clear()
