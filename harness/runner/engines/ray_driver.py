"""The driver's side of runs on a Ray cluster: it hands them out, shows what their actors say, and waits."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.runner.engines.interface import LOST_WORKER
from harness.runner.engines.ray_actors import Mailbox, RunActor
from harness.runner.worker import LOCK, Ended, Shared, take
from harness.runner.worker_pool import JOIN_TIMEOUT_S, ReporterProxy
from harness.utils.errors import INTERRUPTED
from harness.utils.progress import Reporter
from harness.utils.workspace import is_locked
from results import Store
from results.errors import StoreError
from results.records import RunSpec
from zoo.errors import first_line

RETRIES = 3
"""How often Ray repeats a run whose process or node died."""
KILLED_WITHIN_S = 5.0
"""How long a killed actor may take to let go of its run's lock."""
_FORWARDED = ("AWS_", "BENCH_", "GOOGLE_", "HF_", "OMP_", "PG", "XDG_CACHE_HOME")
"""Beginnings of the names of variables that actors get from the driver."""


@dataclass(slots=True)
class _Slot:
    """One actor, and the run that it executes; None before its first, and at its end."""

    actor: Any
    spec: RunSpec | None = None
    ending: bool = False


class Driver:
    """Executes some runs in actors of its own.

    Args:
        ray: the module, connected.
        options: of an actor: its resources.
        runs: with titles.
    """

    def __init__(
        self,
        ray: Any,
        options: dict[str, Any],
        runs: Sequence[tuple[str, RunSpec]],
        shared: Shared,
        store: Store,
        reporter: Reporter,
    ) -> None:
        self._ray, self._waiting, self._shared, self._store, self._reporter = ray, list(runs), shared, store, reporter
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        self._mailbox = ray.remote(Mailbox).options(num_cpus=0, scheduling_strategy=here).remote()
        variables = {name: value for name, value in os.environ.items() if name.startswith(_FORWARDED)}
        threads = max(int(options["num_cpus"]), 1)
        self._made_with = (str(Path.cwd()), variables, threads)
        # In a list actors get the reference, not the bytes. Not given to their constructor: Ray warns of such ones.
        self._given = [ray.put(pickle.dumps(shared)), self._mailbox]
        self._actors = ray.remote(RunActor).options(max_restarts=-1, max_task_retries=RETRIES, **options)
        self._mail = self._mailbox.take.remote()
        self._pending: dict[Any, _Slot] = {}
        self._shown: dict[str, ReporterProxy] = {}

    def run(self, slots: int) -> Iterator[tuple[RunSpec, Ended]]:
        """Start so many actors, or as many as there are runs; yields each run as it ends."""
        try:
            for _ in range(min(slots, len(self._waiting))):
                slot = _Slot(self._actors.remote(*self._made_with))
                self._pending[slot.actor.ready.remote()] = slot
            while self._pending:
                # Only the closing of scorers has a limit, and no run depends on it.
                limit = JOIN_TIMEOUT_S if all(slot.ending for slot in self._pending.values()) else None
                done, _ = self._ray.wait([*self._pending, self._mail], num_returns=1, timeout=limit)
                if not done:
                    break
                self._read_mail(all_of_it=done != [self._mail])
                for future in done:
                    if (slot_done := self._pending.pop(future, None)) is not None:
                        yield from self._answered(slot_done, future)
        except KeyboardInterrupt:
            interrupted = [slot.spec for slot in self._pending.values() if slot.spec is not None]
            self._kill_all()
            self._mark_interrupted(interrupted)
            raise
        finally:
            self._kill_all()
            self._ray.kill(self._mailbox)

    def _answered(self, slot: _Slot, future: Any) -> Iterator[tuple[RunSpec, Ended]]:
        """What an actor's answer means: that it is ready, that its run ended, that it is lost, or has closed all."""
        if slot.ending:
            self._ray.kill(slot.actor)
            return
        spec, slot.spec = slot.spec, None
        errors, problem = self._ray.exceptions, None
        ended: Any = None
        try:
            ended = self._ray.get(future)
        except errors.RayTaskError as error:  # raised in the actor, which can go on
            problem = type(error.cause).__name__, str(error.cause)
        except errors.RayError as error:
            problem = LOST_WORKER, f"its process or node ended {1 + RETRIES} times: {first_line(error)}"
        if spec is not None:
            self._shown.pop(spec.key).close()
            yield spec, ended if problem is None else self._failed(spec, *problem)
        elif problem is not None:
            while self._waiting and not self._pending:  # no other actor is there, or will be
                _, spec = self._waiting.pop(0)
                yield spec, self._failed(spec, *problem)
            return
        if self._waiting:
            self._submit(slot)
        else:
            slot.ending = True
            self._pending[slot.actor.end.remote()] = slot

    def _submit(self, slot: _Slot) -> None:
        title, spec = take(self._waiting, self._shared.workspace)
        proxy = self._shown[spec.key] = ReporterProxy(self._reporter)
        proxy.name = _named(spec)
        slot.spec = spec
        self._pending[slot.actor.work.remote(title, spec, self._given)] = slot

    def _failed(self, spec: RunSpec, error_class: str, reason: str) -> Ended:
        self._store.fail(spec.key, error_class, reason, "")
        self._reporter.note(f"  {_named(spec)}: failed: {error_class}: {reason}", style="red")
        return "failed"

    def _read_mail(self, *, all_of_it: bool) -> None:
        """Show what actors said; all of it where a run has ended, whose last words come before the next run's."""
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

    def _mark_interrupted(self, specs: Sequence[RunSpec]) -> None:
        """Store that runs were interrupted, once their actors are gone; not of one that another command executes."""
        end = time.monotonic() + KILLED_WITHIN_S
        for spec in specs:
            lock = self._shared.workspace.run_folder(spec.key) / LOCK
            while (held := is_locked(lock)) and time.monotonic() < end:
                time.sleep(0.05)
            if not held:
                with suppress(StoreError):  # what ends is the command, whatever the store says
                    self._store.interrupt(spec.key, INTERRUPTED)


def _named(spec: RunSpec) -> str:
    return f"{spec.model} seed {spec.seed}" if spec.seed else spec.model
