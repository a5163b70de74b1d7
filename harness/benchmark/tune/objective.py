"""One trial: a training of the model with given values, judged by its validation CIDEr-D alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from harness.benchmark.context import RunContext
from harness.benchmark.execute import open_to_train
from harness.benchmark.models import RequestedModel
from harness.benchmark.plan import plan_runs
from harness.benchmark.train import fit
from harness.config.tuning import Tuned, TunedValues
from harness.utils.progress import Reporter, Task
from harness.utils.workspace import Workspace
from results.records import EpochRecord, RunSpec

TRIAL_SEED = 1_000_000
"""The training seed of all trials, which no run has by default: values are not chosen for the seeds that are shown."""


class TrialReporter(Reporter):
    """The tasks of another reporter, without its lines."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter

    def note(self, text: str, style: str = "") -> None:
        """Print nothing."""

    @contextmanager
    def task(self, title: str, total: int, done: int = 0) -> Iterator[Task]:
        """See `Reporter.task`."""
        with self._reporter.task(title, total, done) as task:
            yield task


def trial_spec(model: RequestedModel, context: RunContext, workspace: Workspace) -> RunSpec:
    """The spec of a trial under this context; its key, where nothing is tuned, is over all that a trial depends on."""
    [spec] = plan_runs([model], 1, context, workspace, first_seed=TRIAL_SEED)
    return spec


def train_trial(
    model: RequestedModel,
    values: TunedValues,
    context: RunContext,
    workspace: Workspace,
    folder: Path,
    on_validation: Callable[[float, int, bool], None],
    reporter: Reporter,
) -> float:
    """The best validation CIDEr-D, as a fraction, of the last stage of a training with `values`.

    Args:
        folder: of its checkpoints, from which a training that was ended goes on.
        on_validation: gets each validation's CIDEr-D, the optimiser steps before it, and whether it is the last; what
            it raises ends the training.

    Raises:
        TrainingDivergedError: the loss is no number any more.
        BenchError: as `harness.benchmark.train.fit`.
    """
    tuned = replace(context, tuned=Tuned("trial", {model.name: values}))
    spec = trial_spec(model, tuned, workspace)
    stages = context.preset.schedule.stages

    def on_epoch(record: EpochRecord) -> None:
        if record.val_cider is not None:
            last = record.stage + 1 == len(stages) and record.epoch + 1 == stages[-1].epochs
            on_validation(record.val_cider, record.step, last)

    torch.manual_seed(spec.seed)
    captioner, own, _ = open_to_train(spec, tuned)
    return fit(captioner, spec.seed, own, folder, on_epoch, TrialReporter(reporter)).best_cider
