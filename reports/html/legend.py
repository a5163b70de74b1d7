"""The colours of models, and legends of plots: names in the order of their score."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from reports.html.labels import natural
from reports.html.sections import COLOURS, SHAPES
from results.runs.run import Run


@dataclass(frozen=True, slots=True)
class Entry:
    """A model in a legend; `open_end`: a training of it was still learning when it ended."""

    name: str
    colour: int
    open_end: bool = False


def legend(
    names: Iterable[str], ranked: Iterable[str], colour: Mapping[str, int], open_ended: Collection[str] = ()
) -> list[Entry]:
    """Each name once: those that are ranked in that order, then the others, m2 before m10."""
    place = {name: number for number, name in reversed(list(enumerate(ranked)))}
    order = sorted(set(names), key=lambda name: (place.get(name, len(place)), natural(name)))
    return [Entry(name, colour[name], name in open_ended) for name in order]


def colours(runs: Iterable[Run]) -> dict[str, int]:
    """A colour and shape for every model, the same in all plots; they repeat once all pairs are used."""
    names = sorted({run.model for run in runs})
    return {name: number % (COLOURS * SHAPES) for number, name in enumerate(names)}
