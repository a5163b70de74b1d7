"""Leaderboards and cost tables as plain values, shared by the HTML pages and the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from reports.tables import numbers
from reports.tables.columns import Columns, every_column
from reports.tables.contamination import contamination
from reports.tables.table_values import NOISY, Notes, TableValue, cost_value, marked, missing, score_value
from reports.tables.verdict import learning_label
from results.runs.leaderboard import Group, Row


@dataclass(frozen=True, slots=True)
class Heading:
    """A column: its name, its short name for narrow places, what it means, and whether more is better.

    `barred` columns show bars beside their numbers; by those that are not `sortable` rows are never ordered. `key` is
    the name of its score or cost in the store, "" where it is of neither.
    """

    name: str
    short: str
    meaning: str
    descending: bool = True
    barred: bool = False
    sortable: bool = True
    key: str = ""


@dataclass(frozen=True, slots=True)
class Badge:
    """A label beside a model's name, the sentences that explain it, and the mark of the note that has these."""

    label: str
    sentence: str
    mark: str


@dataclass(frozen=True, slots=True)
class Line:
    """One row: model, what sets it apart from its namesakes, the runs behind it as (seed, key), and its numbers.

    `tag` says what level a row marks; `facets` is what filters choose by; `badges` what a reader
    must know of the row: what its model may have seen before, that it was still learning, that older code made it.
    """

    model: str
    differs: str
    runs: tuple[tuple[int, str], ...]
    cells: tuple[TableValue, ...]
    tag: str = ""
    facets: Mapping[str, str] = field(default_factory=dict)
    badges: tuple[Badge, ...] = ()


@dataclass(frozen=True, slots=True)
class Body:
    """Lines that stand together under a title of their own; `id` is the place on the page, "" for none."""

    title: str
    lines: tuple[Line, ...]
    id: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Headings of the number columns, ranked lines, reference lines that are never ranked, and notes.

    `apart` are lines of other groups, which are ranked neither with the others nor among each other's bodies.
    """

    headings: tuple[Heading, ...]
    lines: tuple[Line, ...]
    references: tuple[Line, ...]
    notes: Notes
    apart: tuple[Body, ...] = ()

    @property
    def all_lines(self) -> tuple[Line, ...]:
        """Every line, wherever it stands."""
        return (*self.lines, *(line for body in self.apart for line in body.lines), *self.references)

    @property
    def spreads(self) -> list[bool]:
        """By column, whether any of its numbers has a spread, so that all leave room for one."""
        return [any(line.cells[column].spread for line in self.all_lines) for column in range(len(self.headings))]

    def share(self, column: int, cell: TableValue) -> float | None:
        """The length of a cell's bar, in per cent of the column's largest value."""
        values = (line.cells[column].value for line in self.all_lines)
        largest = max((value for value in values if value is not None), default=0.0)
        return None if cell.value is None or largest <= 0 else round(100 * max(0.0, cell.value) / largest, 1)


SHORT = {"BLEU-1": "B-1", "BLEU-2": "B-2", "BLEU-3": "B-3", "BLEU-4": "B-4"}
_LEVELS = {"majority": "the floor", "human": "the human level"}
SHORT |= {"METEOR": "M", "ROUGE-L": "R", "CIDEr-D": "C", "SPICE": "S"}


def leaderboard(
    group: Group, like: Sequence[Group] = (), notes: Notes | None = None, columns: Columns | None = None
) -> Table:
    """A line a row with the scores and costs of `columns`: every metric and two costs where none are given.

    With `like`, the columns are those that these groups need together; with `notes`, reasons are added to those.
    """
    rows = [row for each in (like or (group,)) for row in (*each.rows, *each.references)]
    shown = columns or every_column(rows, group.metric)
    headings = [
        Heading(name, SHORT.get(name, name), f"{name}, times 100; more is better", key=name) for name in shown.metrics
    ]
    headings += [_cost_heading(name, _unit(rows, name)) for name in shown.costs]
    return _table(
        group,
        headings,
        lambda row, notes: (
            *(score_value(row.scores.get(name), notes) for name in shown.metrics),
            *(_cost_of(row, name, notes) for name in shown.costs),
        ),
        notes=notes,
    )


def absent_levels(group: Group) -> str:
    """What to type where a leaderboard does not show yet between which floor and which level its rows lie, or ""."""
    shown = {row.model for row in group.references}
    absent = [name for name in ("majority", "human") if name not in shown]
    if not group.rows or not absent:
        return ""
    what = " and ".join(_LEVELS[name] for name in absent)
    return f"Not measured yet: {what}; add {','.join(absent)} to --models."


def by_domain(group: Group, metric: str = "CIDEr-D") -> Table | None:
    """One metric alone in each domain and overall, as nocaps results are given; None where there are no domains."""
    rows = (*group.rows, *group.references)
    domains = numbers.domain_order(name for row in rows for name in row.domains)
    if not domains:
        return None
    headings = [Heading(name, name, f"{metric} of the {name} images, times 100") for name in domains]
    whole = any(metric in row.scores for row in rows)
    if whole:
        headings.append(Heading("overall", "overall", f"{metric} of the whole split, times 100"))
    return _table(
        group,
        headings,
        lambda row, notes: (
            *(score_value(row.domains.get(name, {}).get(metric), notes) for name in domains),
            *([score_value(row.scores.get(metric), notes)] if whole else []),
        ),
    )


def cost_tables(group: Group) -> dict[str, Table]:
    """What the group's rows cost, by theme: size and computation, time, memory; themes without a cost are left out.

    Latencies that are noise are marked, in the place of a column that says so.
    """
    rows = [row for row in (*group.rows, *group.references) if row.costs]
    by_theme: dict[str, list[str]] = {theme: [] for theme in numbers.THEMES}
    for name in numbers.cost_order(name for row in rows for name in row.costs):
        if name != NOISY:
            by_theme[numbers.cost_kind(name, _unit(rows, name)).theme].append(name)
    return {theme: _cost_table(group, names) for theme, names in by_theme.items() if names}


def badges(row: Row, group: Group, notes: Notes) -> tuple[Badge, ...]:
    """What a reader must know of the row, each with a note.

    What its model may have seen of the group's split, how its training ended, that older code made it.
    """
    seen = contamination(row.pretraining, group.dataset, group.split)
    labels = [(seen.label, seen.sentence)] if seen else []
    if label := learning_label(row):
        labels.append(label)
    if row.outdated:
        labels.append(("older code", f"Not made by the newest code: {row.outdated}."))
    return tuple(Badge(label, sentence, notes.mark(f"{label}: {sentence}")) for label, sentence in labels)


def signature_text(signature: Mapping[str, str], split: str | None = None) -> str:
    """The signature to copy beside a score, as in sacreBLEU: fields joined by bars, the split among them."""
    fields = signature if split is None or "split" in signature else {"split": split, **signature}
    return "|".join(["CIDEr-D", *(f"{name}:{value}" for name, value in fields.items())])


def differences(differs: Mapping[str, str | None]) -> str:
    """What sets a row apart, on one line; fields that a row has no part in are left out."""
    return ", ".join(f"{name}: {value}" for name, value in differs.items() if value not in (None, "none"))


def _cost_of(row: Row, name: str, notes: Notes) -> TableValue:
    if row.role == "reference" and name not in row.costs:
        return missing("a reference row has no model", notes)
    return marked(cost_value(row.costs.get(name), notes), row, name, notes)


def _cost_heading(name: str, unit: str) -> Heading:
    kind = numbers.cost_kind(name, unit)
    short = {"parameters": "Params", "gmac_beam_mean_length": "MAC", "gmac_beam": "MAC"}.get(name, kind.label)
    return Heading(kind.label, short, kind.meaning, descending=unit == "images/s", key=name)


def _unit(rows: Iterable[Row], name: str) -> str:
    return next((row.costs[name].unit for row in rows if name in row.costs and row.costs[name].unit), "")


def _cost_table(group: Group, names: Sequence[str]) -> Table:
    headings = [_cost_heading(name, _unit((*group.rows, *group.references), name)) for name in names]
    return _table(
        group,
        headings,
        lambda row, notes: tuple(_cost_of(row, name, notes) for name in names),
        keep=lambda row: (
            row.role == "model" or any(row.costs[name].value is not None for name in names if name in row.costs)
        ),
        scored=False,
    )


def _table(
    group: Group,
    headings: Sequence[Heading],
    cells: Callable[[Row, Notes], tuple[TableValue, ...]],
    keep: Callable[[Row], bool] = lambda _: True,
    notes: Notes | None = None,
    scored: bool = True,
) -> Table:
    """A line a row; of tables without scores none has a badge."""
    notes = Notes() if notes is None else notes

    def lines(rows: Iterable[Row]) -> tuple[Line, ...]:
        return tuple(
            Line(
                row.model,
                differences(row.differs),
                tuple(zip(row.seeds, row.keys, strict=True)),
                cells(row, notes),
                badges=badges(row, group, notes) if scored else (),
            )
            for row in rows
            if keep(row)
        )

    return Table(tuple(headings), lines(group.rows), lines(group.references), notes)
