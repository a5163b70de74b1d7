"""The papers' numbers as the report shows them: with their conditions, beside measured ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from reports import numbers
from reports.cells import Cell, Notes
from reports.facts import NOT_STATED
from results.published import (
    PAPERS,
    PublishedMatch,
    PublishedScore,
    best_match,
    footnotes,
    measured_conditions,
    printed_rows,
    published_for,
)
from results.published.scores import METRICS
from results.views import Group, Row, RunDetail

_SPLITS = {
    "karpathy-test": "COCO Karpathy test",
    "karpathy-val": "COCO Karpathy val",
    "coco-online-c5": "COCO server c5",
    "coco-online-c40": "COCO server c40",
    "nocaps-val": "nocaps val",
}
NOCAPS = "nocaps-val"
NOWHERE = "No paper that this release knows prints this model."


@dataclass(frozen=True, slots=True)
class PrintedRow:
    """One row of a paper's table: which table, under which conditions by name, its scores by metric, what to know."""

    table: str
    conditions: tuple[tuple[str, str], ...]
    scores: tuple[str, ...]
    notes: tuple[str, ...]


def published_cell(
    row: Row, group: Group, runs: Mapping[str, RunDetail], notes: Notes, domains: Sequence[str] = ()
) -> Cell:
    """The printed CIDEr-D whose conditions are nearest to the row's, with those conditions as its note.

    Where it is of nocaps, those of `domains` stand before it.
    """
    if row.role == "reference":
        return Cell("", None)
    match = nearest(row, group, runs)
    if match is None:
        return Cell(numbers.DASH, None, reason=NOWHERE, mark=notes.mark(NOWHERE))
    matches = [nearest(row, group, runs, domain=name) for name in domains] if match.score.split == NOCAPS else []
    texts = [numbers.percent(each.score.fraction) if each else numbers.DASH for each in (*matches, match)]
    text = " / ".join(texts)
    return Cell(text, match.score.fraction, reason=source(match.score), mark=notes.mark(_note(match)))


def nearest(row: Row, group: Group, runs: Mapping[str, RunDetail], *, domain: str = "overall") -> PublishedMatch | None:
    """The printed CIDEr-D whose conditions are nearest to the row's; None where none is printed."""
    run = runs[row.keys[0]]
    return best_match(row.model, "CIDEr-D", measured_conditions(group.split, run.signature, run.config), domain=domain)


def printed_table(model: str) -> tuple[tuple[str, ...], dict[str, list[PrintedRow]]]:
    """Every printed score of a model, by paper one line a printed row, and the metrics that are the columns."""
    found = printed_rows(score for score in published_for(model) if score.unit == "percent")
    metrics = tuple(name for name in METRICS if any(name in row for row in found))
    by_paper: dict[str, list[PrintedRow]] = {}
    for row in found:
        paper = PAPERS[next(iter(row.values())).paper]
        by_paper.setdefault(f"{paper.title}, {paper.year}", []).append(_row(row, metrics))
    return metrics, by_paper


@cache
def source(score: PublishedScore) -> str:
    """Where a number is printed, as people cite it."""
    paper = PAPERS[score.paper]
    return f"{score.table} of \u201c{paper.title}\u201d ({paper.year})"


def _row(row: Mapping[str, PublishedScore], metrics: Sequence[str]) -> PrintedRow:
    first = next(iter(row.values()))
    known = dict.fromkeys(footnote.text for score in row.values() for footnote in footnotes(score))
    read = dict.fromkeys(score.note for score in row.values() if score.note)
    scores = tuple(f"{row[name].value:.1f}" if name in row else numbers.DASH for name in metrics)
    return PrintedRow(first.table, _conditions(first), scores, (*read, *known))


def _conditions(score: PublishedScore) -> tuple[tuple[str, str], ...]:
    """A printed number's conditions by name, "not stated" where the paper does not state one."""
    several = f"of {score.ensemble_size}" if score.ensemble_size else "yes"
    split = _SPLITS.get(score.split or "", score.split or NOT_STATED)
    found = {
        "split": split + (f", {score.domain}" if score.domain else ""),
        "objective": score.objective or NOT_STATED,
        "beam": NOT_STATED if score.beam is None else str(score.beam),
        "ensemble": NOT_STATED if score.ensemble is None else (several if score.ensemble else "no"),
        "features": score.features or NOT_STATED,
        "backbone": score.backbone or NOT_STATED,
    }
    return tuple(found.items())


def _note(match: PublishedMatch) -> str:
    conditions = ", ".join(f"{name}: {value}" for name, value in _conditions(match.score))
    text = f"{source(match.score)}; {conditions}. "
    if match.matches:
        return text + "Measured here under the same conditions."
    for words, fields in (
        ("Other conditions here", match.differing),
        ("Cannot be compared", match.unclear),
        ("Not stated", match.unstated),
    ):
        text += f"{words}: {', '.join(fields)}. " if fields else ""
    return (text + " ".join(footnote.text for footnote in match.footnotes)).strip()
