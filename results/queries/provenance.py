"""Which finished runs were made by other code than the newest, and in what it differs."""

from __future__ import annotations

from collections.abc import Sequence

from results.queries.finished_runs import FinishedCell

_NAMED = 3


def outdated(cells: Sequence[FinishedCell]) -> dict[str, str]:
    """By key, why a run is not of the newest code: another results revision, or other sources of its model.

    The newest code is that of the run that finished last, of a model that of its own last run.
    """
    in_time = sorted((cell for cell in cells if cell.code is not None), key=lambda cell: cell.finished_at)
    newest = {cell.model: cell for cell in in_time}
    found = {}
    for cell in cells:
        if cell.code is None:
            found[cell.key] = f"captionbench {cell.code_version} made it, which did not record its code"
            continue
        last, of_model = in_time[-1].code, newest[cell.model].code
        assert last is not None
        assert of_model is not None
        if cell.code.revision != last.revision:
            found[cell.key] = f"of results revision {cell.code.revision}, the newest is {last.revision}"
        elif cell.code.model != of_model.model:
            paths = sorted(cell.code.files.keys() | of_model.files.keys())
            changed = [path for path in paths if cell.code.files.get(path) != of_model.files.get(path)]
            changed = [path for path in changed if not path.startswith("harness/")]
            more = f" and {len(changed) - _NAMED} more" if len(changed) > _NAMED else ""
            found[cell.key] = f"made before {', '.join(changed[:_NAMED])}{more} changed"
    return found
