"""Models that are tuned side by side on this machine, each by one process.

A model's trials are done one after the other, as the sampler chooses each by the scores of those before: so the values
are the same with however many processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace

from harness.benchmark.engines.crew import Failure, Order
from harness.benchmark.engines.entering import enter_worker
from harness.benchmark.engines.processes import ProcessCrew
from harness.benchmark.models import RequestedModel
from harness.benchmark.tune.study import standing
from harness.benchmark.tune.trials import Search, described_error, do_trials, open_study
from harness.utils.progress import Reporter

OPENER = f"{__name__}:open_tuner"


def do_trials_side_by_side(models: Sequence[RequestedModel], search: Search, reporter: Reporter) -> dict[str, str]:
    """Do all trials that are left, of as many models at a time as there are jobs; errors as `do_trials`."""
    left = [model for model in models if not standing(open_study(model, search).study, search.budget).done]
    crew = ProcessCrew(search.context.execution.config.jobs, OPENER, search, reporter)
    errors: dict[str, str] = {}
    with closing(crew.perform([Order(model.name, model) for model in left])) as ending:
        for order, found in ending:
            if isinstance(found, Failure):
                reporter.note(f"{order.name}: failed: {found}", style="red")
                errors[order.name] = str(found)
            else:
                errors |= found
    return errors


@contextmanager
def open_tuner(search: Search, place: int, reporter: Reporter) -> Iterator[Callable[[RequestedModel], dict[str, str]]]:
    """In a process of its own: do the trials of one model after another; gives the errors."""
    here = replace(search, context=enter_worker(search.context, place))

    def tune(model: RequestedModel) -> dict[str, str]:
        try:
            return do_trials([model], here, reporter)
        except Exception as error:  # the other models go on
            return {model.name: described_error(error)}

    yield tune
