"""Contents of pages with tables: the leaderboard's summary, filters and whiskers, scores by domain, costs, method."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from reports import numbers
from reports.columns import NOISY_KEY, Cell, Column, cost_column
from reports.html.plots import Plot, Series
from reports.numbers import percent
from reports.tables.boards import Board
from reports.tables.contents import ONE_MODEL, Contents
from reports.tables.fields import FIELDS, ROLES
from reports.tables.leaderboards import Facets, by_domain
from reports.tables.table import Table, table_of
from results.costs import THEMES, cost_info, cost_order, leaderboard_costs
from results.metrics import RANKING_METRIC, metric_info, metric_order, metrics_by_domain
from results.runs.leaderboard import Group, Row
from results.signature import format_signature

WIDTH = 140.0
_LEVELS = ("majority", "blind", "retrieval", "human")
_SEED = re.compile(r"seeds? -?\d+(?:, -?\d+)*: ")
_BLIND = "blind"


@dataclass(frozen=True, slots=True)
class Scale:
    """The common scale of a table's scores, with `ticks`, a path, of the baselines and levels that `meaning` names."""

    least: float
    most: float
    ticks: str
    meaning: str

    def at(self, value: float) -> float:
        """The position of a value in units of the drawing: from 3 to its width less 3."""
        share = (value - self.least) / (self.most - self.least)
        return round(3 + (WIDTH - 6) * share, 1)

    def has(self, value: float) -> bool:
        return self.least <= value <= self.most


Part = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class Section:
    """Plots with their legend, tables by title, and by model the counted parts.

    `details` are the conditions, in words, that distinguish it from sections of the same title.
    """

    id: str
    title: str
    track: str
    details: str
    tables: Mapping[str, Table]
    legend: Sequence[Series] = ()
    plots: Sequence[Plot] = ()
    operators: Sequence[tuple[str, list[Part]]] = ()


def summary(contents: Contents) -> str:
    groups = contents.groups
    models = {row.model for group in groups for row in group.rows}
    runs = {key for group in groups for row in (*group.rows, *group.references) for key in row.keys}
    if not models:
        return "No model has finished yet."
    references = {row.model for group in groups for row in group.references}
    references_text = f" and {_many(len(references), 'reference')}" if references else ""
    data = numbers.listed(sorted({group.dataset for group in groups}))
    text = f"{_many(len(models), 'model')}{references_text} on {data}, "
    text += f"{_many(len(runs), 'finished run')}"
    for status in ("failed", "skipped", "interrupted", "running", "planned"):
        count = sum(failure.state == status for failure in contents.failures)
        if count:
            text += f", {count} {status}"
    sizes = next((dataset.split_sizes for dataset in contents.datasets if dataset.name == groups[0].dataset), {})
    trained = f" Trained on {sizes['train']:,} images." if len(contents.datasets) == 1 and "train" in sizes else ""
    return f"{text}.{trained}"


def facets(board: Board) -> dict[str, list[str]]:
    """The facets that a leaderboard's rows can be filtered by, with their values; those of one value are left out."""
    values_of: dict[str, set[str]] = {"family": set(), "objective": set()}
    for line in board.table.all_lines:
        for name, value in line.facets.items():
            values_of[name].add(value)
    # Families of a single model come last.
    ordered = {
        name: sorted(values, key=lambda value: (value == ONE_MODEL, value)) for name, values in values_of.items()
    }
    return {name: values for name, values in ordered.items() if len(values) > 1}


def scale(board: Board) -> Scale | None:
    """The scale of the scores that rank a board's models, without baselines; None if no row has an interval."""
    lines = board.table.all_lines
    index = board.table.index(board.metric)
    assert index is not None
    models = [line.cells[index] for line in board.table.lines if not line.tag]
    bounds = [end for cell in models if cell.bounds for end in cell.bounds]
    if not bounds or min(bounds) == max(bounds):
        return None
    least = min(bounds)
    most = max(bounds)
    scores = {line.model: line.cells[index].value for line in reversed(lines) if line.model in _LEVELS}
    levels = sorted((value, name) for name, value in scores.items() if value is not None and least <= value <= most)
    meaning = f"Bars are 95 % intervals, from {percent(least)} to {percent(most)}"
    if levels:
        tick_names = ", ".join(f"{name} {percent(value)}" for value, name in levels)
        introduction = "the tick is" if len(levels) == 1 else "the ticks are, from left to right,"
        meaning += f"; {introduction} {tick_names}"
    plain = Scale(least, most, "", f"{meaning}.")
    return replace(plain, ticks="".join(f"M{plain.at(value):g} 0v12" for value, _ in levels))


def domain_sections(contents: Contents, counts: Mapping[tuple[str, str], Mapping[str, int]]) -> list[Section]:
    """The groups that have domains, largest first, with one table for each metric."""
    sections: list[Section] = []
    for group in contents.groups:
        images = counts.get((group.fingerprint, group.split), {})
        tables = {}
        for name in metrics_by_domain():
            table = by_domain(group, name, images, contents.runs, contents.facets)
            if table and any(map(table.values, range(len(table.columns)))):
                tables[name] = table
            elif table:
                reasons = dict.fromkeys(cell.note for line in table.all_lines for cell in line.cells if cell.note)
                tables[name] = Table((), (), sentences=(f"No row has {name}: {'; '.join(reasons)}.",))
        if any(table.columns for table in tables.values()):
            id = f"domains-{len(sections) + 1}"
            sections.append(Section(id, contents.title(group), group.track, contents.details(group), tables))
    return sections


def cost_sections(contents: Contents) -> list[Section]:
    """Measured costs by group, with one table for each theme; splits of the same runs share one section."""
    groups_by_runs: dict[frozenset[str], Group] = {}
    for group in contents.groups:
        run_keys = frozenset(key for row in group.rows for key in row.keys)
        groups_by_runs.setdefault(run_keys, group)  # splits of the same runs differ only in ranks
    sections = []
    for index, group in enumerate((group for keys, group in groups_by_runs.items() if keys), start=1):
        tables = cost_tables(group, contents.facets)
        if any(table.columns for table in tables.values()):
            counted = ((row.model, counted_parts(contents.runs[row.keys[0]].operators)) for row in group.rows)
            parts = [(model, operators) for model, operators in counted if operators]
            words = contents.words_of_runs(group.dataset, group.signature)
            heading = f"costs-{index}", group.dataset, group.track, words
            sections.append(Section(*heading, tables, operators=parts))
    return sections


def counted_parts(operators: Mapping[str, Any]) -> list[Part]:
    """The parts that the counter of multiply-accumulates recorded; entries of another form are ignored."""
    counted_of_parts = []
    for name, part in operators.items():
        if isinstance(part, Mapping) and {"macs", "by_operator", "uncounted"} <= part.keys():
            counted = _amounts(part["by_operator"], numbers.macs)
            left_out = _amounts(part["uncounted"], lambda times: f"×{times:,.0f}")
            counted_of_parts.append((name.replace("_", " "), numbers.macs(part["macs"]), counted, left_out))
    return counted_of_parts


def _amounts(by_name: Mapping[str, float], show: Callable[[float], str]) -> str:
    ordered = sorted(by_name.items(), key=lambda entry: (-entry[1], entry[0]))
    return ", ".join(f"{name} {show(amount)}" for name, amount in ordered) or numbers.DASH


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def cost_tables(group: Group, facets: Facets) -> dict[str, Table]:
    """The costs of the group's rows by theme, noisy latencies marked; themes without a cost are left out.

    The time to evaluate captions is not a cost of the model.
    """
    rows = [row for row in (*group.rows, *group.references) if row.costs]
    by_theme: dict[str, list[str]] = {theme: [] for theme in THEMES}
    for name in cost_order(name for row in rows for name in row.costs if name != NOISY_KEY):
        unit = next((row.costs[name].unit for row in rows if name in row.costs and row.costs[name].unit), "")
        info = cost_info(name, unit)
        if info.type != "evaluation":
            by_theme[info.theme].append(name)
    return {theme: _summarise(_table(group, names, rows, facets)) for theme, names in by_theme.items() if names}


def _table(group: Group, names: Sequence[str], rows: Sequence[Row], facets: Facets) -> Table:
    """The costs; each one of the leaderboard is followed by its ratio to the blind model's."""
    compared = {cost.name for cost in leaderboard_costs(names)}
    columns = []
    for name in names:
        column = cost_column(name, rows)
        columns.append(column)
        if name in compared:
            columns += _ratio(column, group)

    def is_costed(row: Row) -> bool:
        return row.role == "model" or any(row.costs[name].value is not None for name in names if name in row.costs)

    return table_of(group, columns, facets, is_costed, badged=False)


def _ratio(column: Column, group: Group) -> list[Column]:
    """The column of ratios to the blind model's cost, or else to the least; none if there is nothing to compare."""
    cells = [(row, column.read(row, group)) for row in (*group.rows, *group.references)]
    values = [cell.value for _, cell in cells if cell.value is not None and not cell.other_machine]
    blind = next((cell.value for row, cell in cells if row.model == _BLIND and not cell.other_machine), None)
    unit = blind or min(values, default=0.0)
    if unit <= 0 or len(values) < 2:
        return []

    def read(row: Row, _: Group) -> Cell:
        cell = column.read(row, group)
        if cell.value is None or cell.other_machine:
            return Cell("")
        times = cell.value / unit
        text = f"{times:.2f}×" if times < 10 else f"{numbers.significant(round(times))}×"
        return Cell(f"~{text}" if cell.text.startswith("~") else text, times)

    name = f"× {_BLIND if blind else 'least'}"
    meaning = "times that of the model that sees no image" if blind else "times the least of this table"
    return [Column(name, read, f"{column.name}, {meaning}", name, descending=False)]


def _summarise(table: Table) -> Table:
    """The table without columns that are empty or the same in every row, which become sentences."""

    def is_same(index: int) -> bool:
        has_reference_values = any(line.cells[index].value is not None for line in table.references)
        return (
            len(table.lines) > 1
            and not has_reference_values
            and len({line.cells[index].text for line in table.lines}) == 1
        )

    def is_condition(index: int) -> bool:
        return cost_info(table.columns[index].key, "").type == "condition"

    indices = range(len(table.columns))
    empty = [index for index in indices if not table.values(index)]
    same = [index for index in indices if is_condition(index) and is_same(index)]
    by_reason: dict[str, list[str]] = {}
    for index in empty:
        reasons = [line.cells[index].reason or "" for line in table.lines or table.references]
        # The same reason of several seeds is given once.
        parts = dict.fromkeys(_SEED.sub("", part) for reason in reasons for part in reason.split("; "))
        by_reason.setdefault("; ".join(filter(None, parts)), []).append(table.columns[index].name)
    sentences = [f"Not measured here: {'; '.join(names)} ({reason})." for reason, names in by_reason.items()]
    if same:
        values = "; ".join(f"{table.columns[index].name}: {table.lines[0].cells[index].text}" for index in same)
        sentences.append(f"The same in every row: {values}.")
    remaining = [index for index in indices if index not in empty and index not in same]
    return replace(table.only(remaining), sentences=tuple(sentences))


def method(contents: Contents) -> dict[str, Any]:
    """The content of the page: the conditions of every table, and the meaning of metrics, levels and costs."""
    groups = contents.groups
    runs = contents.runs
    rows = [row for group in groups for row in (*group.rows, *group.references)]
    scored = (scores for row in rows for scores in (row.scores, *row.domains.values()))
    metrics = metric_order(name for scores in scored for name in scores)
    models = {row.model for row in rows}
    units = {name: cost.unit for run in runs.values() for name, cost in run.costs.items()}
    kinds = [cost_info(name, units[name]) for name in cost_order(units)]
    ranked = [group for group in groups if group.rows]
    return {
        "tables": [_conditions(f"conditions-{index}", group, contents) for index, group in enumerate(ranked, start=1)],
        "metrics": [(name, meaning) for name in metrics if (meaning := metric_info(name).meaning)],
        "levels": [(name, *ROLES[name]) for name in ROLES if name in models],
        "costs": [(kind.label, kind.meaning) for kind in kinds],
    }


def _tuning(label: str | None) -> str:
    """The field `tuned` of a signature, such as "12x300+2x2#1a2b3c", in words; "" if nothing was tuned."""
    if label is None:
        return ""
    searched, _, finals = label.partition("#")[0].partition("+")
    count, _, updates = searched.partition("x")
    finalists, _, seeds = finals.partition("x")
    finals_text = f"; then the best {finalists} and the preset again, with {seeds} further seeds" if finals else ""
    return f"{count} trials of at most {updates} updates for each model, the untuned preset among them{finals_text}"


def _conditions(id: str, group: Group, contents: Contents) -> dict[str, Any]:
    """The conditions of one table; `fields` are name, value, meaning, and whether one separates the table."""
    values = {"split": group.split} | ({} if "track" in group.signature else {"track": group.track}) | group.signature
    return {
        "id": id,
        "title": contents.title(group),
        "models": tuple(dict.fromkeys(row.model for row in group.rows)),
        "fields": [(name, value, FIELDS.get(name, ""), name in group.separating) for name, value in values.items()],
        "signature": format_signature(group.signature, RANKING_METRIC, group.split),
        "comparisons": group.comparisons,
        "tuning": _tuning(group.signature.get("tuned")),
    }
