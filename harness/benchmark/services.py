"""What a process opens once for all runs that it executes."""

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
    """What a process opens once for all runs that it executes: the store, the scorers, and data by what is opened.

    Nothing is opened before it is asked for. Within its block, `services_of` gives these.
    """

    def __init__(self, workspace: Workspace, reporter: Reporter, plugins: Sequence[str] = ()) -> None:
        super().__init__()
        self.workspace, self.reporter = workspace, reporter
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
        """What scores captions of these conditions; its processes start behind the first training."""
        settings = context.evaluation
        if settings not in self._evaluators:
            self._evaluators[settings] = self.enter_context(Evaluator(settings=settings))
        return self._evaluators[settings]

    def context(
        self, conditions: Conditions, *, check: Check = lambda _: None, spread: Spread | None = None
    ) -> RunContext:
        """Data, features and vocabulary of runs, with the preset and the execution of these conditions."""
        name = conditions.opened()
        if name not in self._contexts:
            self._contexts.clear()  # the runs of a benchmark share one
            self._contexts[name] = open_context(conditions, self.workspace, self.reporter, check=check, spread=spread)
        context = self._contexts[name]
        context = replace(context, compute=replace(context.compute, settings=conditions.execution))
        return context.with_preset(conditions.preset, conditions.made_from if isinstance(conditions, RunBase) else None)

    def warm_up(self, context: RunContext) -> None:
        """Start what scores captions, hidden behind the first training."""
        if not self._warm:
            samples = chain.from_iterable(context.data.evaluated.values())
            references = [caption for sample in samples for caption in sample.captions]
            self.evaluator(context).warm_up(references, context.inputs.vocabulary.words)
            self._warm = True


_OPENED: dict[tuple[int, Workspace], Services] = {}
"""The services of a process, by its id and their workspace: a forked process does not use those of its parent."""


def services_of(workspace: Workspace) -> Services:
    """The services of this process for a workspace; in a worker they are opened, silent, for all of its calls."""
    if (os.getpid(), workspace) not in _OPENED:
        services = Services(workspace, Reporter())
        services.is_of_worker = True
        services.__enter__()
        close_with_worker(services)
    return _OPENED[os.getpid(), workspace]
