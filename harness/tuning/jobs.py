"""Models that are tuned side by side, each by a process of its own.

A model's trials are done one after the other, as the sampler chooses each by the scores of those before: so the values
are the same with however many processes.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.connection import Connection, Pipe, wait

from harness.runner.models import RequestedModel
from harness.runner.worker_pool import (
    JOIN_TIMEOUT_S,
    RemoteReporter,
    ReporterProxy,
    cause_of_death,
    enter_worker,
    limit_threads,
)
from harness.tuning.trials import Search, described_error, do_trials
from harness.utils.processes import end_workers, make_worker, starting_worker
from harness.utils.progress import Reporter


def do_trials_side_by_side(models: Sequence[RequestedModel], search: Search, reporter: Reporter) -> dict[str, str]:
    """Do all trials that are left, of as many models at a time as there are jobs; errors as `do_trials`."""
    pickled, waiting = pickle.dumps(search), list(models)
    working: dict[object, _Process] = {}
    errors: dict[str, str] = {}
    try:
        while waiting or working:
            while waiting and len(working) < search.context.execution.config.jobs:
                place = min(set(range(len(working) + 1)) - {process.place for process in working.values()})
                with starting_worker():
                    started = _Process(waiting.pop(0), place, pickled, reporter)
                    working[started.channel] = started
            for channel in wait([process.channel for process in working.values()]):
                found = working[channel].receive()
                if found is not None:
                    errors |= found
                    working.pop(channel).end()
    finally:
        end_workers([process.process for process in working.values()])
        for process in working.values():
            process.end()
    return errors


class _Process:
    """The main process's side of a process that tunes one model."""

    def __init__(self, model: RequestedModel, place: int, pickled: bytes, reporter: Reporter) -> None:
        self.model, self.place = model.name, place
        self.channel, theirs = Pipe()
        self.process = make_worker(f"{__name__}:tune_one", theirs, place, model, pickled)
        self.process.start()
        theirs.close()  # the process then holds the only other end, so that its end closes the channel
        self._reporter, self._shown = reporter, ReporterProxy(reporter)
        self._shown.name = model.name

    def receive(self) -> dict[str, str] | None:
        """Show its next message; gives the errors once it is done."""
        try:
            message = self.channel.recv()
        except (EOFError, OSError):
            cause = cause_of_death(self.process)
            said = f"{cause.error_class}: {cause.reason}"
            self._reporter.note(f"{self.model}: failed: {said}", style="red")
            return {self.model: said}
        if isinstance(message, tuple):
            self._shown.show(message)
            return None
        errors: dict[str, str] = message
        return errors

    def end(self) -> None:
        """Wait for its end, and remove its bars."""
        self._shown.close()
        self.process.join(JOIN_TIMEOUT_S)
        self.process.kill()


def tune_one(channel: Connection, place: int, model: RequestedModel, pickled: bytes) -> None:
    """In a process of its own: do the trials of one model, and send the errors."""
    try:
        search: Search = pickle.loads(pickled)  # noqa: S301  # the first process made it
        search = replace(search, context=enter_worker(search.context, place))
        with limit_threads(search.context.execution.config.jobs):
            channel.send(do_trials([model], search, RemoteReporter(channel)))
    except Exception as error:  # the other models go on
        channel.send({model.name: described_error(error)})
