"""Executes planned runs one after another: finished ones are re-used, and an error becomes the row of its run."""

from __future__ import annotations

import shutil
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal

from harness.benchmark.context import RunContext
from harness.benchmark.earlier_stages import NOTE, adopt_stages, without_what_was_not_seen
from harness.benchmark.execute import execute
from harness.benchmark.pretrained import WeightsMissing
from harness.benchmark.scoring import OTHER_SCORE, add_missing_influences, add_missing_scores
from harness.measure.environment import describe_environment
from harness.metrics.evaluation import METRICS
from harness.metrics.evaluator import Evaluator
from harness.metrics.influences import CORPUS_METRICS
from harness.metrics.signature import EvaluationSettings
from harness.training.trackers import RunLog, TrackedRun
from harness.training.trainer import CHECKPOINTS
from harness.utils.errors import INTERRUPTED, wants_traceback
from harness.utils.plugins import contain_exits, place_in_plugin
from harness.utils.progress import Reporter, describe_seconds
from harness.utils.run_events import RunBegins, RunEnds
from harness.utils.workspace import Workspace, locked
from results import Store
from results.errors import StoreError
from results.records import EpochRecord, RunSpec
from results.store.rescoring import missing_influences, missing_metrics

LOG_TAIL_LINES = 40
LOCK = "lock"
Ended = Literal["finished", "reused", "failed", "skipped"]


@dataclass(frozen=True)
class Shared:
    """What all runs of a benchmark share; picklable."""

    context: RunContext
    workspace: Workspace
    evaluation: EvaluationSettings
    rerun: bool


class Worker:
    """Executes one run after another; every run ends as a row of the store."""

    def __init__(self, shared: Shared, store: Store, evaluator: Evaluator, reporter: Reporter) -> None:
        self._shared, self._store, self._evaluator, self._reporter = shared, store, evaluator, reporter
        self._environment = describe_environment(shared.context.execution.device)
        self._retried = set(METRICS) if shared.evaluation.spice else set(METRICS) - {"SPICE"}
        self._warm = False

    def is_done(self, spec: RunSpec) -> bool:
        """Whether there is nothing to do but to re-use what is there."""
        return not self._shared.rerun and self._store.status(spec.key) == "finished"

    def work(self, spec: RunSpec, title: str) -> Ended:
        """Execute the run unless it is finished; wait for another process that executes it."""
        folder = self._shared.workspace.run_folder(spec.key)
        with locked(folder / LOCK, lambda: self._reporter.note(f"{title}: another process works on it; waiting")):
            if self.is_done(spec):
                self._reporter.note(f"{title}: re-used, finished before{self._add_what_is_missing(spec)}")
                return "reused"
            if self._shared.rerun:
                shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
                (folder / NOTE).unlink(missing_ok=True)
            self._reporter.note(title)
            started = time.monotonic()
            self._reporter.watch(RunBegins(spec.model, spec.seed))
            ended = self._run(spec)
            self._reporter.watch(RunEnds())
            if ended == "finished":
                self._reporter.note(f"  done in {describe_seconds(time.monotonic() - started)}")
            return ended

    def _run(self, spec: RunSpec) -> Ended:
        self._warm_up()
        self._store.begin(spec.key, self._environment, spec.code)
        try:
            with contain_exits(), self._run_log(spec) as log:

                def record(epoch: EpochRecord) -> None:
                    self._store.record_epoch(spec.key, epoch)
                    log.on_epoch(epoch)

                begun_by = None if self._shared.rerun else self._adopt_stages(spec, record)
                outcome = execute(
                    spec,
                    self._shared.context,
                    self._evaluator,
                    workspace=self._shared.workspace,
                    environment=self._environment | ({"first_stages_of": begun_by} if begun_by else {}),
                    on_epoch=record,
                    on_step=log.on_step,
                    reporter=self._reporter,
                )
                if begun_by is not None:
                    outcome = replace(outcome, costs=without_what_was_not_seen(outcome.costs, begun_by))
                log.finish(outcome)
            self._store.finish(spec.key, outcome)
        except KeyboardInterrupt:
            with suppress(StoreError):  # what ends is the command, whatever the store says
                self._store.interrupt(spec.key, INTERRUPTED)
            raise
        except WeightsMissing as missing:
            reason = f"{missing} ({missing.hint})"
            self._store.skip(spec.key, reason)
            self._reporter.note(f"  skipped: {reason}", style="yellow")
            return "skipped"
        except Exception as error:
            tail = "\n".join(traceback.format_exc().splitlines()[-LOG_TAIL_LINES:])
            place, hint = place_in_plugin(error), getattr(error, "hint", None)
            reason = (str(error) or type(error).__name__) + "".join(f" ({said})" for said in (place, hint) if said)
            self._store.fail(spec.key, type(error).__name__, reason, tail)
            self._reporter.note(f"  failed: {type(error).__name__}: {reason}", style="red")
            if wants_traceback():
                self._reporter.note(traceback.format_exc())
            return "failed"
        return "finished"

    def _adopt_stages(self, spec: RunSpec, on_epoch: Callable[[EpochRecord], None]) -> str | None:
        """See `harness.benchmark.earlier_stages`."""
        execution, workspace = self._shared.context.execution, self._shared.workspace
        return adopt_stages(spec, workspace, self._store, execution, on_epoch, self._reporter)

    def _run_log(self, spec: RunSpec) -> RunLog:
        """The experiment trackers of a run; rows without a model have none."""
        names = () if spec.kind == "reference" else self._shared.context.execution.config.log
        group = f"{spec.dataset} {spec.signature.get('schedule', '')}".rstrip()
        run = TrackedRun(spec.key, spec.model, spec.seed, group, spec.signature, self._shared.workspace.logs)
        return RunLog(names, run, self._reporter)

    def _add_what_is_missing(self, spec: RunSpec) -> str:
        """A note on scores and influences that a finished run lacked; what cannot be had is not tried a second time."""
        key, data, notes = spec.key, self._shared.context.data, []
        if missing := missing_metrics(self._store, key, self._retried):
            self._warm_up()
            reasons = add_missing_scores(spec, missing, data, self._evaluator, self._store)
            self._retried -= {metric for metric, reason in reasons.items() if reason}
            notes = [f"; {metric}: {reason or 'scored now'}" for metric, reason in reasons.items()]
        if missing := missing_influences(self._store, key, self._retried & set(CORPUS_METRICS)):
            self._warm_up()
            reasons = add_missing_influences(spec, missing, data, self._evaluator, self._store)
            self._retried -= {metric for metric, reason in reasons.items() if reason not in {None, OTHER_SCORE}}
            for reason in dict.fromkeys(reasons.values()):
                metrics = ", ".join(metric for metric in CORPUS_METRICS if reasons.get(metric, "") == reason)
                notes.append(f"; influences on {metrics}: {reason or 'added'}")
        return "".join(notes)

    def _warm_up(self) -> None:
        """Start what scores captions, hidden behind the first training."""
        if not self._warm:
            context = self._shared.context
            samples = chain.from_iterable(context.data.evaluated.values())
            references = chain.from_iterable(sample.captions for sample in samples)
            self._evaluator.warm_up([*context.inputs.vocabulary.words, *references])
            self._warm = True
