"""Which runs belong together: those of one model under one set of conditions, whatever code made them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from results.records import Role, without_code
from results.runs.run import Run

UNKNOWN: Final = "unknown"
"""What a recording says of a platform's field that is not known."""
Row = tuple[Role, str, frozenset[tuple[str, str]]]
"""Equal for the seeds of one model under one set of conditions, whatever code made them."""


def row_of(run: Run) -> Row:
    return run.role, run.model, frozenset(without_code(run.conditions).items())


def newest_runs(runs: Iterable[Run]) -> list[Run]:
    """The newest of the runs that should give the same results, whatever code made them."""
    newest: dict[object, Run] = {}
    for run in runs:
        identity = row_of(run), run.seed
        if identity not in newest or newest[identity].ended <= run.ended:
            newest[identity] = run
    return list(newest.values())


def differing(before_fields: Mapping[str, str], after_fields: Mapping[str, str], absent: str = "none") -> list[str]:
    """The fields in which two signatures differ, each with both values."""
    pairs = {
        name: (before_fields.get(name, absent), after_fields.get(name, absent))
        for name in dict.fromkeys((*before_fields, *after_fields))
    }
    return [f"{name} {before} → {after}" for name, (before, after) in pairs.items() if before != after]


def distinguishing(runs: Sequence[Run]) -> list[str]:
    """By run, the conditions that distinguish it from others of its model, on one line: one where that is enough."""
    labels = []
    for run in runs:
        rivals = [other.conditions for other in runs if (other.role, other.model) == (run.role, run.model)]
        names = dict.fromkeys(name for conditions in rivals for name in without_code(conditions))
        values = {name: {conditions.get(name, "none") for conditions in rivals} for name in names}
        sufficient = [name for name in names if len(values[name]) == len(rivals) > 1]
        shortest = sorted(sufficient, key=lambda name: max(map(len, values[name])))[:1]
        label_fields = shortest or [name for name in names if len(values[name]) > 1]
        labels.append(", ".join(f"{name}: {run.conditions.get(name, 'none')}" for name in label_fields))
    return labels
