"""Objects that a process opens once for all runs that it executes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cache, cached_property
from itertools import chain
from typing import Any, Self

import torch

from harness.benchmark.context import Check, RunContext, open_context
from harness.config.run import Conditions, RunBase
from harness.data.feature_cache import Spread
from harness.measure.environment import describe_environment
from harness.metrics.evaluator import Evaluator
from harness.metrics.signature import EvaluationSettings
from harness.utils.plugins import load_plugins
from harness.utils.processes import close_with_worker
from harness.utils.progress import Reporter
from harness.utils.workspace import Workspace
from results import Store


class Services(ExitStack):
    """Objects that a process opens once for all runs that it executes: the store, scorers, data and features.

    Each is opened on first use, and closed at the end of the `with` block, within which `services_of` returns this
    object.

    Attributes:
        environment: describes the machine, packages and a device.
        unscored: metrics that could not be computed in this process, which are not tried again.
        is_of_worker: whether this process is a worker of an executor, whose output goes to the log of each run.
    """

    def __init__(self, workspace: Workspace, reporter: Reporter, plugins: Sequence[str] = ()) -> None:
        super().__init__()
        self.workspace = workspace
        self.reporter = reporter
        self._plugins = set(plugins)
        self._contexts: dict[str, RunContext] = {}
        self._evaluators: dict[EvaluationSettings, Evaluator] = {}
        self._warm = False
        self.environment: Callable[[torch.device], dict[str, Any]] = cache(describe_environment)
        self.unscored: set[str] = set()
        self.is_of_worker = False

    def __enter__(self) -> Self:
        _OPENED[os.getpid(), self.workspace] = self
        return super().__enter__()

    def __exit__(self, *ended: Any) -> bool | None:
        _OPENED.pop((os.getpid(), self.workspace), None)
        return super().__exit__(*ended)

    def load(self, plugins: Sequence[str]) -> None:
        """Load the plug-ins of a run that are not loaded yet."""
        load_plugins(name for name in plugins if name not in self._plugins)
        self._plugins.update(plugins)

    @cached_property
    def store(self) -> Store:
        """The results of the workspace."""
        return self.enter_context(Store(self.workspace.database))

    def evaluator(self, context: RunContext) -> Evaluator:
        """The evaluator of captions under these conditions; its processes start during the first training."""
        settings = context.evaluation
        if settings not in self._evaluators:
            self._evaluators[settings] = self.enter_context(Evaluator(settings=settings))
        return self._evaluators[settings]

    def context(
        self, conditions: Conditions, *, check: Check = lambda _: None, spread: Spread | None = None
    ) -> RunContext:
        """Data, features and vocabulary of runs, with the preset and the execution of these conditions."""
        identity = conditions.opened()
        if identity not in self._contexts:
            self._contexts.clear()  # only one is kept: the runs of a benchmark share it
            self._contexts[identity] = open_context(
                conditions, self.workspace, self.reporter, check=check, spread=spread
            )
        context = self._contexts[identity]
        context = replace(context, compute=replace(context.compute, settings=conditions.execution))
        return context.with_preset(conditions.preset, conditions.made_from if isinstance(conditions, RunBase) else None)

    def warm_up(self, context: RunContext) -> None:
        """Start the evaluator's processes, so that they load during the first training."""
        if not self._warm:
            samples = chain.from_iterable(context.data.evaluated.values())
            references = [caption for sample in samples for caption in sample.captions]
            self.evaluator(context).warm_up(references, context.inputs.vocabulary.words)
            self._warm = True


_OPENED: dict[tuple[int, Workspace], Services] = {}
"""The services of a process, by process id and workspace: a forked process must not use those of its parent."""


def services_of(workspace: Workspace) -> Services:
    """The services of this process for a workspace; in a worker, they are opened on the first call."""
    if (os.getpid(), workspace) not in _OPENED:
        services = Services(workspace, Reporter())
        services.is_of_worker = True
        services.__enter__()
        close_with_worker(services)
    return _OPENED[os.getpid(), workspace]
