"""A table: columns that say how a cell is read from a row, lines of cells, and notes; every renderer takes one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from reports.columns import RANK, Cell, Column
from reports.numbers import DASH
from reports.tables.facts import PLUG_IN, Badge, contamination, learning_label
from reports.tables.fields import ROLES
from results.runs.leaderboard import Group, Row
from results.signature import format_fields

_CARD = "the card of its captions"


@dataclass(frozen=True, slots=True)
class Line:
    """One row: model, what sets it apart from its namesakes, the runs behind it as (seed, key), and its numbers.

    `tag` says what level a row marks; `facets` is what filters choose by; `badges` what a reader must know of the row:
    what its model may have seen before, that it was still learning, that older code made it.
    """

    model: str
    differs: str
    runs: tuple[tuple[int, str], ...]
    cells: tuple[Cell, ...]
    tag: str = ""
    facets: Mapping[str, str] = field(default_factory=dict)
    badges: tuple[Badge, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.model} ×{len(self.runs)}" if len(self.runs) > 1 else self.model

    @property
    def notes(self) -> Iterable[str]:
        return (*(badge.note for badge in self.badges), *(cell.note for cell in self.cells if cell.note))


@dataclass(frozen=True)
class Table:
    """Columns, ranked lines, and reference lines that are never ranked.

    `sentences` say more of the columns, and of those that are left out because they would tell nothing.
    """

    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    references: tuple[Line, ...] = ()
    sentences: tuple[str, ...] = ()

    @property
    def all_lines(self) -> tuple[Line, ...]:
        return (*self.lines, *self.references)

    @cached_property
    def marks(self) -> dict[str, str]:
        """The mark of each note: a, b, c ... in the order in which they are met."""
        notes = dict.fromkeys(note for line in self.all_lines for note in line.notes)
        return {note: letters(number) for number, note in enumerate(notes)}

    @cached_property
    def noted_models(self) -> dict[str, str]:
        """By note the models that it is of; "" if it is of all."""
        models: dict[str, dict[str, None]] = {}
        for line in self.all_lines:
            for note in line.notes:
                models.setdefault(note, {})[line.model] = None
        total = len({line.model for line in self.all_lines})
        return {note: "" if len(names) == total else ", ".join(names) for note, names in models.items()}

    @cached_property
    def common_badges(self) -> dict[str, Badge]:
        """By their labels the badges that every row of a trained model has: they are said of the table."""
        models = [line for line in self.lines if not line.tag]
        if len(models) < 2:
            return {}
        labels = set.intersection(*({badge.label for badge in line.badges} for line in models))
        return {badge.label: badge for badge in models[0].badges if badge.label in labels}

    @cached_property
    def symbols(self) -> dict[str, Badge]:
        """By their labels the badges that some rows have, for the legend below the table."""
        badges = [badge for line in self.all_lines for badge in line.badges if badge.label not in self.common_badges]
        return {badge.label: badge for badge in badges}

    @cached_property
    def best_texts(self) -> list[str]:
        """By column the best number of a model, as it is shown; "" if nothing is to be compared."""
        best: list[str] = []
        for index, column in enumerate(self.columns):
            cells = [line.cells[index] for line in self.lines if not line.tag]
            texts = {cell.value: cell.text for cell in cells if cell.value is not None and not cell.other_machine}
            if column.has_direction and len(set(texts.values())) > 1:
                best.append(texts[(max if column.descending else min)(texts)])
            else:
                best.append("")
        return best

    @property
    def has_top(self) -> bool:
        return any(map(self.is_top, self.lines))

    def is_top(self, line: Line) -> bool:
        """Whether no other row is significantly better."""
        index = self.index(RANK)
        ranks = None if index is None else line.cells[index].ranks
        return ranks is not None and ranks[0] == 1

    @cached_property
    def spreads(self) -> list[bool]:
        """By column, whether any of its numbers has a spread, so that all leave room for one."""
        return [any(line.cells[index].deviation_text for line in self.all_lines) for index in range(len(self.columns))]

    @cached_property
    def ranks(self) -> int:
        return max((cell.ranks[1] for line in self.all_lines for cell in line.cells if cell.ranks), default=1)

    def index(self, key: str) -> int | None:
        return next((index for index, column in enumerate(self.columns) if column.key == key), None)

    def values(self, index: int) -> list[float]:
        return [value for line in self.all_lines if (value := line.cells[index].value) is not None]

    def shows(self, index: int) -> bool:
        return any(line.cells[index].text.strip(DASH) for line in self.all_lines)

    def share(self, index: int, cell: Cell) -> float | None:
        """The length of a cell's bar, in per cent of the column's largest value."""
        largest = max(self.values(index), default=0.0)
        return None if cell.value is None or largest <= 0 else round(100 * max(0.0, cell.value) / largest, 1)

    def only(self, indices: Sequence[int]) -> Table:
        """The table with these of its columns, in this order."""

        def cut(lines: Iterable[Line]) -> tuple[Line, ...]:
            return tuple(replace(line, cells=tuple(line.cells[index] for index in indices)) for line in lines)

        columns = tuple(self.columns[index] for index in indices)
        return Table(columns, cut(self.lines), cut(self.references), self.sentences)


def table_of(
    group: Group,
    columns: Sequence[Column],
    facets: Mapping[str, Mapping[str, str]],
    keep: Callable[[Row], bool] = lambda _: True,
    *,
    badged: bool = True,
) -> Table:
    """A line for each row of a group that is kept, references apart."""

    def lines(rows: Iterable[Row]) -> tuple[Line, ...]:
        return tuple(line_of(row, group, columns, facets, badged=badged) for row in rows if keep(row))

    return Table(tuple(columns), lines(group.rows), lines(group.references))


def line_of(
    row: Row, group: Group, columns: Sequence[Column], facets: Mapping[str, Mapping[str, str]], *, badged: bool = True
) -> Line:
    return Line(
        row.model,
        differences(row.differs),
        tuple(zip(row.seeds, row.keys, strict=True)),
        tuple(column.read(row, group) for column in columns),
        ROLES.get(row.model, ("", ""))[0],
        {} if row.role == "reference" else facets.get(row.keys[0], {}),
        badges_of(row, group) if badged else (),
    )


def badges_of(row: Row, group: Group) -> tuple[Badge, ...]:
    """What a reader must know of the row: data its model may have seen, how training ended, and what computed it."""
    overlap = contamination(row.pretraining, group.dataset, group.split)
    if overlap is not None and row.pretraining and row.pretraining.source == _CARD and not row.pretraining.data_sets:
        overlap = replace(overlap, sentence=f"{overlap.sentence} A card of the system can document it (--cards).")
    badges = [badge for badge in (overlap, learning_label(row)) if badge]
    if row.outdated:
        badges.append(Badge("older code", f"Not computed by the newest code: {row.outdated}.", "↺"))
    if row.other_hardware:
        badges.append(Badge("other hardware", f"Computed on {row.other_hardware}, unlike most rows.", "⇄"))
    if row.plugins:
        names = ", ".join(row.plugins)
        badges.append(Badge(PLUG_IN, f"Computed with --plugin {names}, whose code can change any score.", "+"))
    if row.unmatched:
        reason = f"It has the preset's sizes, not as many parameters as the others: {row.unmatched}."
        badges.append(Badge("size not matched", reason, "≠"))
    if row.members > 1:
        explanation = "The mean of their probabilities at each word, at the cost of all; papers print such rows apart."
        badges.append(Badge(f"ensemble of {row.members}", explanation, "Σ"))
    return tuple(badges)


def differences(differs: Mapping[str, str | None]) -> str:
    """What sets a row apart, on one line; fields that a row has no part in are left out."""
    if differs.get("heldout") == "each":
        count = differs.get("nrefs") or ""
        others = "the others" if not count or "=" in count else "one other" if count == "1" else f"{count} others"
        left = {name: value for name, value in differs.items() if name not in ("heldout", "nrefs")}
        return ", ".join(filter(None, (f"each against {others}", differences(left))))
    parts = [format_fields({name: value for name, value in differs.items() if value not in (None, "none")})]
    if is_of_whole_split(differs):
        parts.append("of all images")
    return ", ".join(filter(None, parts))


def is_of_whole_split(differs: Mapping[str, str | None]) -> bool:
    """Whether a row was scored on all images of a split of which the group's rows were scored on a part."""
    return "subset" in differs and differs["subset"] is None


def letters(number: int) -> str:
    letters = ""
    while number >= 0:
        number, letters = number // 26 - 1, chr(ord("a") + number % 26) + letters
    return letters
