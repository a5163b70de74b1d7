"""The papers' numbers as the report shows them: with their conditions, beside measured ones."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from reports import numbers
from reports.columns import Cell, noted_cell
from reports.tables.facts import NOT_STATED
from results.metrics import metric_names
from results.published import scores as published
from results.published.scores import PAPERS, PublishedMatch, PublishedScore, nearest, told_by_card
from results.runs.leaderboard import Group, Row
from results.runs.run import Run

_SPLITS = {
    "karpathy-test": "COCO Karpathy test",
    "karpathy-val": "COCO Karpathy val",
    "coco-online-c5": "COCO server c5",
    "coco-online-c40": "COCO server c40",
    "nocaps-val": "nocaps val",
}


@dataclass(frozen=True, slots=True)
class PrintedRow:
    table: str
    conditions: tuple[tuple[str, str], ...]
    scores: tuple[str, ...]
    notes: tuple[str, ...]


def has_published(group: Group, runs: Mapping[str, Run]) -> bool:
    """Whether a group's table has the column of printed scores: of papers' data sets and splits, or of a row's card."""
    cards = any(told_by_card(runs[row.keys[0]].config) for row in group.rows)
    return cards or (bool(group.rows) and published.printed_split(group.dataset, group.split) is not None)


def published_cell(row: Row, group: Group, runs: Mapping[str, Run], domains: Mapping[str, int] | None = None) -> Cell:
    """The printed CIDEr-D whose conditions are nearest to the row's, with those conditions as its note.

    Where it is of nocaps, those of `domains` stand before it: how many images each has here, by name; 0: not known.
    """
    if row.role == "reference":
        return Cell("")
    run = runs[row.keys[0]]
    mean = row.scores["CIDEr-D"].mean

    def beside(printed: float) -> str:
        """A printed number, and what the captions of its system have more."""
        gap = "" if run.kind != "captions" or mean is None else f" ({round(100 * mean - printed, 1) + 0.0:+.1f})"
        return f"{printed:.1f}{gap.replace('-', '−')}"

    if (stated := told_by_card(run.config)) is not None:
        return Cell(beside(stated), stated / 100, reason=run.card.get("printed_in") or "the card of its captions")
    match = nearest(run.model, group.split, run.signature, run.config)
    if match is None:
        return noted_cell(numbers.DASH, "No printed score is recorded here.")
    note = published_note(match)
    matches = []
    if domains and match.score.split == "nocaps-val":
        matches = [nearest(run.model, group.split, run.signature, run.config, name) for name in domains]
        footnote = published.domain_footnote(domains)
        note += f" {footnote}" if footnote else ""
    texts = [numbers.percent(domain_match.score.fraction) if domain_match else numbers.DASH for domain_match in matches]
    texts.append(beside(match.score.value))
    return Cell(" / ".join(texts), match.score.fraction, reason=source(match.score), note=note)


def published_beside(run: Run) -> list[str]:
    """For each split of a run that papers print scores of, the nearest printed CIDEr-D with its `published_note`.

    Of captions that another system wrote, that of their card where it has one.
    """
    if (stated := told_by_card(run.config)) is not None:
        return [f"CIDEr-D {stated:.1f}, {run.config['card'].get('printed_in') or 'as the card of the captions says'}"]
    matches = {split: nearest(run.model, split, run.signature, run.config) for split in run.scores.splits}
    return [
        f"{run.dataset} {split}: CIDEr-D {numbers.percent(match.score.fraction)}, {published_note(match)}"
        for split, match in matches.items()
        if match is not None
    ]


def printed_table(model: str) -> tuple[tuple[str, ...], dict[str, list[PrintedRow]]]:
    """Every printed score of a model, by paper one line a printed row, and the metrics that are the columns."""
    rows = published.printed_rows(score for score in published.published_for(model) if score.unit == "percent")
    metrics = tuple(name for name in metric_names() if any(name in row for row in rows))
    by_paper: dict[str, list[PrintedRow]] = {}
    for row in rows:
        first = next(iter(row.values()))
        footnotes = dict.fromkeys(text for score in row.values() for text in published.footnotes(score))
        read = dict.fromkeys(score.note for score in row.values() if score.note)
        scores = tuple(f"{row[name].value:.1f}" if name in row else numbers.DASH for name in metrics)
        printed = PrintedRow(first.table, _conditions(first), scores, (*read, *footnotes))
        title, year = PAPERS[first.paper]
        by_paper.setdefault(f"{title}, {year}", []).append(printed)
    return metrics, by_paper


@cache
def source(score: PublishedScore) -> str:
    title, year = PAPERS[score.paper]
    return f"{score.table} of \u201c{title}\u201d ({year})"


def _conditions(score: PublishedScore) -> tuple[tuple[str, str], ...]:
    """A printed number's conditions by name, "not stated" where the paper does not state one."""
    several = f"of {score.ensemble_size}" if score.ensemble_size else "yes"
    split = _SPLITS.get(score.split or "", score.split or NOT_STATED)
    return (
        ("split", split + (f", {score.domain}" if score.domain else "")),
        ("objective", score.objective or NOT_STATED),
        ("beam", NOT_STATED if score.beam is None else str(score.beam)),
        ("ensemble", NOT_STATED if score.ensemble is None else (several if score.ensemble else "no")),
        ("features", score.features or NOT_STATED),
        ("backbone", score.backbone or NOT_STATED),
    )


def published_note(match: PublishedMatch) -> str:
    """Where a number is printed and under which conditions, which of them are others here, and what else to know."""
    conditions = ", ".join(f"{name}: {value}" for name, value in _conditions(match.score))
    text = f"{source(match.score)}; {conditions}. "
    text += "Every one of these conditions is the same here. " if match.matches else ""
    for words, fields in (
        ("Other conditions here", match.differing),
        ("Cannot be compared", match.unclear),
        ("Not stated", match.unstated),
    ):
        text += f"{words}: {', '.join(fields)}. " if fields else ""
    return (text + " ".join(match.footnotes)).strip()
