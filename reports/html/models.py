"""Pages of the models: paper, configuration, results, costs, example captions, runs, and printed scores."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reports import numbers
from reports.columns import Cell, Column, cost_list, rank_cell, score_cell
from reports.html.gallery import LONG_CAPTION, GalleryPage, pieces, stems
from reports.html.rendering import model_page
from reports.tables.contents import Contents
from reports.tables.facts import Deviations, ModelFacts, card, deviations, objective
from reports.tables.fields import ROLES
from reports.tables.printed import PrintedRow, printed_table, published_beside
from reports.tables.table import Line, Table, differences
from results.costs import leaderboard_costs
from results.metrics import metric_order
from results.records import Quantity
from results.runs.gallery import GalleryItem
from results.runs.leaderboard import Group, Row
from results.runs.run import Run
from results.runs.spreads import Spread

_FURTHER_COSTS = (
    *("train_images_per_second", "train_peak_memory_host", "train_peak_memory_device"),
    "energy_per_image",
)
"""Costs on a model's page besides those of the leaderboard."""
_SHARES = (("lowest", 0.0), ("median", 0.5), ("highest", 1.0))


@dataclass(frozen=True, slots=True)
class Example:
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
    title: str
    conditions: str
    rank: str
    table: Table
    examples: tuple[Example, ...]


@dataclass(frozen=True, slots=True)
class ModelPage:
    """Everything about one model.

    Attributes:
        runs: each with its objective, one split and its score.
        presets: of the runs, with their deviations from them.
        nearest_printed: sentences on the nearest printed score for each of its scores, and the conditions that differ.
    """

    file: str
    name: str
    card: ModelFacts
    level: str
    runs: list[tuple[Run, str, str, Cell]]
    results: tuple[Result, ...]
    costs: list[tuple[str, str, Cell]]
    presets: tuple[Deviations, ...]
    metrics: tuple[str, ...]
    printed: dict[str, list[PrintedRow]]
    nearest_printed: tuple[str, ...]

    @property
    def is_reference(self) -> bool:
        return all(run.role == "reference" for run, *_ in self.runs)


def model_pages(contents: Contents, examples: Mapping[tuple[str, str], ExamplesByRun]) -> list[ModelPage]:
    """A page for every model that was planned, in the order of names."""
    by_model: dict[str, list[Run]] = {}
    for run in contents.runs.values():
        by_model.setdefault(run.model, []).append(run)
    pages = []
    for name, members in sorted(by_model.items()):
        metrics, printed = printed_table(name)
        rows: list[tuple[Row, Group]] = []
        for group in contents.groups:
            rows += [(row, group) for row in (*group.rows, *group.references) if row.model == name]
        cards = [card(run) for run in members]
        presets = [deviations(run.config) for run in members]
        sentences = [sentence for run in members for sentence in published_beside(run)]
        pages.append(
            ModelPage(
                file=model_page(name),
                name=name,
                card=next((model_card for model_card in cards if model_card.pretraining), cards[0]),
                level=ROLES.get(name, ("", ""))[1],
                runs=list(map(_run, members)),
                results=tuple(_result(row, group, contents, examples) for row, group in rows),
                costs=next(filter(None, (_costs(row) for row, _ in rows)), []),
                presets=tuple(dict.fromkeys(preset for preset in presets if preset)),
                metrics=metrics,
                printed=printed,
                nearest_printed=tuple(dict.fromkeys(sentences)),
            )
        )
    return pages


def score_table(by_domain: Mapping[str, Mapping[str, Spread | Quantity]]) -> Table:
    metrics = metric_order(name for scores in by_domain.values() for name in scores)
    columns = tuple(Column(name, lambda *_: Cell(""), f"{name}, times 100", name) for name in metrics)
    order = numbers.domain_order(list(by_domain))
    lines = (Line(name, "", (), tuple(score_cell(by_domain[name].get(metric)) for metric in metrics)) for name in order)
    return Table(columns, tuple(lines))


def examples_by_run(gallery: GalleryPage) -> dict[str, tuple[Example, ...]]:
    """By run, the images with its lowest, median and highest CIDEr-D; no image is used twice."""
    scored: dict[str, list[tuple[float, str, GalleryItem]]] = {}
    for item in gallery.items:
        for caption in item.captions:
            if caption.cider is not None:
                scored.setdefault(caption.key, []).append((caption.cider, caption.caption, item))
    return {key: _examples(of_run, gallery) for key, of_run in scored.items()}


def flat(value: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    entries: list[tuple[str, str]] = []
    for name, entry in value.items():
        if isinstance(entry, Mapping) and entry:
            entries += flat(entry, f"{prefix}{name}.")
        elif isinstance(entry, list) and any(isinstance(item, Mapping) for item in entry):
            entries += flat({str(index): item for index, item in enumerate(entry, start=1)}, f"{prefix}{name}.")
        else:
            text = json.dumps(entry, ensure_ascii=False) if isinstance(entry, list | dict) else str(entry)
            entries.append((f"{prefix}{name}", numbers.DASH if entry is None else text))
    return entries


def _result(row: Row, group: Group, contents: Contents, examples: Mapping[tuple[str, str], ExamplesByRun]) -> Result:
    scores = {name: spread for name, spread in row.scores.items() if spread.mean is not None}
    by_domain = {
        name: {metric: spreads[metric] for metric in scores if metric in spreads}
        for name, spreads in row.domains.items()
    }
    return Result(
        title=contents.title(group),
        conditions=", ".join(filter(None, (contents.details(group), differences(row.differs)))),
        rank=_rank_sentence(row, group),
        table=score_table({"overall": scores} | by_domain),
        examples=examples.get((group.fingerprint, group.split), {}).get(row.keys[0], ()),
    )


def _costs(row: Row) -> list[tuple[str, str, Cell]]:
    names = {*_FURTHER_COSTS, *(cost.name for cost in leaderboard_costs(row.costs))}
    return cost_list({name: cost for name, cost in row.costs.items() if name in names and cost.value is not None})


def _rank_sentence(row: Row, group: Group) -> str:
    if row.role == "reference":
        return "Reference, not ranked."
    cell = rank_cell(row.ranks.get(group.metric))
    if cell.value is not None:
        sentence = f"Rank {cell.text} by {group.metric}"
    elif cell.text:
        sentence = f"No rank: {cell.reason or cell.text}"
    else:
        sentence = "No rank"
    count = "1 model" if len(group.rows) == 1 else f"{len(group.rows)} models"
    return f"{sentence}; {count} listed."


def _examples(scored: list[tuple[float, str, GalleryItem]], gallery: GalleryPage) -> tuple[Example, ...]:
    scored.sort(key=lambda entry: (entry[0], entry[2].image_id))
    examples: dict[int, Example] = {}
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
        examples.setdefault(item.image_id, example)
    return tuple(examples.values())


def _run(run: Run) -> tuple[Run, str, str, Cell]:
    splits = run.scores.splits
    split = "test" if "test" in splits else next(iter(splits), "")
    score = run.scores.get(split, "CIDEr-D") or Quantity(None, f"the run is {run.state}")
    return run, objective(run), split, score_cell(score)
