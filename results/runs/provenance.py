"""Which finished runs were made by older code than the newest, and in which files it differs."""

from __future__ import annotations

from collections.abc import Sequence

from results.runs.finished_runs import FinishedRun

_NAMED = 3


def outdated(runs: Sequence[FinishedRun]) -> dict[str, str]:
    """By key, why a run is not of the newest code: another results revision, or other sources of its model.

    The newest code is that of the run that finished last, of a model that of its own last run.
    """
    in_time = sorted((run for run in runs if run.code is not None), key=lambda run: run.finished_at)
    newest = {run.model: run for run in in_time}
    found = {}
    for run in runs:
        if run.code is None:
            found[run.key] = f"captionbench {run.code_version} made it, which did not record its code"
            continue
        last, of_model = in_time[-1].code, newest[run.model].code
        assert last is not None
        assert of_model is not None
        if run.code.revision != last.revision:
            found[run.key] = f"of results revision {run.code.revision}, the newest is {last.revision}"
        elif run.code.model != of_model.model:
            changed = [path for path in run.code.changed_files(of_model) if not path.startswith("harness/")]
            more = f" and {len(changed) - _NAMED} more" if len(changed) > _NAMED else ""
            found[run.key] = f"made before {', '.join(changed[:_NAMED])}{more} changed"
    return found
