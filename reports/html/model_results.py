"""What a model's page says of its results: places, scores by domain, costs and example captions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from reports.html.costs import cost_list
from reports.html.gallery import LONG_CAPTION, GalleryPage
from reports.html.words import pieces, stems
from reports.tables import numbers, table_values, tables
from reports.tables.leaderboard_page import apart, group_title
from reports.tables.table_values import Notes, TableValue
from reports.tables.tables import Heading, Line, Table
from results.runs.gallery import GalleryItem
from results.runs.leaderboard import Group, Row
from results.runs.run import DatasetInfo

_COSTS = (
    "parameters",
    "train_seconds",
    "train_images_per_second",
    "latency_median",
    "train_peak_memory_host",
    "train_peak_memory_device",
    "energy_per_image",
)
_SHARES = (("lowest", 0.0), ("median", 0.5), ("highest", 1.0))


@dataclass(frozen=True, slots=True)
class Example:
    """One image with the model's caption of it: `which` of its scores it is, its picture or "", a reference."""

    image_id: int
    which: str
    page: str
    picture: str
    pieces: tuple[tuple[str, bool], ...]
    cider: float
    reference: str


ExamplesByRun = Mapping[str, tuple[Example, ...]]


@dataclass(frozen=True, slots=True)
class Result:
    """One row of a leaderboard: where it stands, and its scores, a line a domain."""

    title: str
    conditions: str
    place: str
    table: Table
    examples: tuple[Example, ...]


def model_results(
    name: str,
    groups: Sequence[Group],
    datasets: Sequence[DatasetInfo],
    examples: Mapping[tuple[str, str], ExamplesByRun],
) -> tuple[Result, ...]:
    """The model's rows on every leaderboard, in the order of the groups.

    Args:
        examples: by data and split; those of a row's first seed are shown.
    """
    return tuple(
        Result(
            title=group_title(group, datasets),
            conditions=", ".join(filter(None, (apart(group), tables.differences(row.differs)))),
            place=_place(row, group),
            table=_scores(row),
            examples=examples.get((group.fingerprint, group.split), {}).get(row.keys[0], ()),
        )
        for group in groups
        for row in (*group.rows, *group.references)
        if row.model == name
    )


def model_costs(name: str, groups: Iterable[Group]) -> list[tuple[str, str, TableValue]]:
    """What the model's first row costs, as `cost_list`; what was not measured is left out."""
    for row in (row for group in groups for row in (*group.rows, *group.references) if row.model == name):
        wanted = (numbers.caption_count(row.costs), *_COSTS)
        measured = {cost: row.costs[cost] for cost in wanted if cost in row.costs}
        if found := cost_list({cost: amount for cost, amount in measured.items() if amount.value is not None}):
            return found
    return []


def _place(row: Row, group: Group) -> str:
    """Where the row stands, as a sentence."""
    if row.role == "reference":
        return "Reference, not ranked."
    rows = f"{len(group.rows)} {'model' if len(group.rows) == 1 else 'models'} listed"
    shown = table_values.place_value(row.standings.get(group.metric), Notes())
    if not shown.text:
        return f"No place; {rows}."
    if shown.value is None:
        return f"No place: {shown.reason or shown.text}; {rows}."
    return f"Place {shown.text} by {group.metric}; {rows}."


def _scores(row: Row) -> Table:
    """A line for the whole split, and one for each domain."""
    metrics = numbers.metric_order(name for name, spread in row.scores.items() if spread.mean is not None)
    notes = Notes()
    by_domain = {"whole split": row.scores} | {name: row.domains[name] for name in numbers.domain_order(row.domains)}
    lines = tuple(
        Line(domain, "", (), tuple(table_values.score_value(scores.get(name), notes) for name in metrics))
        for domain, scores in by_domain.items()
    )
    return Table(tuple(Heading(name, name, f"{name}, times 100") for name in metrics), lines, (), notes)


def examples_by_run(gallery: GalleryPage) -> dict[str, tuple[Example, ...]]:
    """By run the images of its lowest, median and highest CIDEr-D; one image stands for one of them only."""
    scored: dict[str, list[tuple[float, str, GalleryItem]]] = {}
    for item in gallery.items:
        for caption in item.captions:
            if caption.cider is not None:
                scored.setdefault(caption.key, []).append((caption.cider, caption.caption, item))
    return {key: _examples(found, gallery) for key, found in scored.items()}


def _examples(scored: list[tuple[float, str, GalleryItem]], gallery: GalleryPage) -> tuple[Example, ...]:
    scored.sort(key=lambda found: (found[0], found[2].image_id))
    chosen: dict[int, Example] = {}
    for which, share in _SHARES:
        cider, caption, item = scored[round(share * (len(scored) - 1))]
        example = Example(
            image_id=item.image_id,
            which=which,
            page=f"{gallery.file}#image-{item.image_id}",
            picture=gallery.pictures[item.image_id][0],
            pieces=pieces(caption[:LONG_CAPTION], stems(item.references)),
            cider=cider,
            reference=next(iter(item.references), ""),
        )
        chosen.setdefault(item.image_id, example)
    return tuple(chosen.values())
