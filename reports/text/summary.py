"""The last screen of `bench run`: what came out, in 80 x 24, and what to type next."""

import shlex
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from textwrap import wrap

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from reports.columns import INTERVAL, RANK
from reports.numbers import DASH, duration
from reports.tables.facts import TRAINING_LABELS
from reports.tables.leaderboards import leaderboards
from reports.tables.table import Line, Table
from reports.tables.verdict import headline, longer_training, part_of_split_note, without_rank
from results.runs import reading
from results.runs.leaderboard import Group, leaderboard
from results.runs.run import Run
from results.store.store import Store
from results.text import printable

_LINES = 23
"""Of a terminal of 24 lines; the last has the prompt."""
_BESIDE_NAME = 30  # columns for rank, score and interval
_FEWEST_LETTERS = 20
_FEWEST_ROWS = 3
_FAILURES = 3
_COMMAND_LINES = 3
_COSTS = ("gmac_beam_mean_length", "gmac_beam", "train_seconds")
_HEADINGS = {RANK: "rank", INTERVAL: "95 %", "train_seconds": "training"}
_GAP = 2


@dataclass(frozen=True, slots=True)
class NextCommand:
    """What to type next, and what for; the words are as the shell needs them."""

    words: tuple[str, ...]
    purpose: str
    added: str

    @classmethod
    def of(cls, words: Sequence[str], purpose: str, added: str = "") -> "NextCommand":
        """The command `bench WORDS`; `added` are the options that it has more than the last one."""
        return cls(("bench", *map(shlex.quote, words)), purpose, added)

    def lines(self, width: int) -> list[str]:
        """The last lines of a screen: a command that can be copied as it stands, with what it is for."""
        first = f"next    {' '.join(self.words)}    {self.purpose}"
        if len(first) <= width:
            return [first]
        lines = [f"next    {self.purpose}:"]
        line = ""
        for word in self.words:
            if line and len(line) + len(word) + 3 > width:
                lines.append(f"{line} \\")
                line = "   "
            line = f"{line} {word}" if line else word
        lines.append(line)
        if len(lines) - 1 > _COMMAND_LINES:
            return [f"next    the same command {f'with {self.added}' if self.added else 'again'}    {self.purpose}"]
        return lines


@dataclass(frozen=True)
class Summary:
    """The tables and failures of the runs of one command.

    Attributes:
        groups: the tables that have any of its runs.
        failures: its runs that did not finish.
    """

    groups: tuple[Group, ...]
    failures: tuple[Run, ...]

    @classmethod
    def read(cls, store: Store, keys: Collection[str]) -> "Summary":
        """Read what the runs of these keys gave."""
        key_set, groups = set(keys), leaderboard(store, every_metric=False)
        has_runs = [any(key_set & set(row.keys) for row in (*group.rows, *group.references)) for group in groups]
        failures = tuple(run for run in reading.failures(store) if run.key in key_set)
        return cls(tuple(compress(groups, has_runs)), failures)

    @property
    def largest(self) -> Group | None:
        """The table with most models; of several the one of a test split, and of the longest training."""
        return max(
            self.groups,
            key=lambda group: (len(group.rows), len(group.references), group.split == "test", group.budget),
            default=None,
        )

    def next_command(self, words: Sequence[str]) -> NextCommand:
        """What brings the reader further, after the command `bench WORDS`."""
        group = self.largest
        if self.failures:
            return NextCommand.of(words, "tries again what failed")
        if group is not None and any(len(row.seeds) == 1 for row in group.rows) and not group.is_as_given:
            purpose = "three seeds each, which ranks need"
            return NextCommand.of(_with_option(words, "--seeds", "3"), purpose, "--seeds 3")
        if group is not None and (longer := longer_training([group])):
            command = list(words)
            for option, value in longer.options:
                command = [*command, option, value] if option == "--set" else _with_option(command, option, value)
            times = "twice" if longer.times == 2 else f"{longer.times} times"
            added = " ".join(shlex.join(option) for option in longer.options)
            return NextCommand.of(command, f"trains {times} as long", added)
        return NextCommand.of(["report", "--open"], "every table, caption and cost")

    def print(
        self, console: Console, ended: Mapping[str, str], seconds: float, report: Path | None, next_command: NextCommand
    ) -> None:
        """Print it all.

        Args:
            ended: how each run of the command ended, by key.
            seconds: how long they took.
            report: the page that was written.
        """
        below = [*self._failed(console.width), *self._closing(console.width, ended, seconds, report, next_command)]
        group = self.largest
        if group is None:
            console.print(Text("No run has finished yet.", style="bold"))
        else:
            room = min(console.height - 1 if console.is_terminal else _LINES, _LINES) - len(below)
            self._print_table(console, group, room)
        for line in below:
            console.print(line, soft_wrap=True)

    def _print_table(self, console: Console, group: Group, room: int) -> None:
        """The headline and the best rows of a group, in `room` lines or little more."""
        [table], _ = leaderboards([group], None, {})
        lines = [Text(_conditions(group), style="bold"), Text()]
        lines += [Text(line) for line in wrap(printable(headline(group)), console.width)]
        references = _levels(table, group.metric)
        unranked = printable(without_rank(group))
        part = wrap(printable(part_of_split_note(group)), console.width - 6)
        room -= len(lines) + 3 + bool(references) + len(wrap(unranked, console.width - 6)) + len(part)
        shown_lines = table.lines[: max(room, _FEWEST_ROWS)]
        left_out = len(table.lines) - len(shown_lines)
        for line in (*lines, Text()):
            console.print(line)
        if shown_lines:
            console.print(_best_rows(table, shown_lines, group.metric, console.width))
        notes = [f"{left_out} more row{'s' if left_out > 1 else ''}"] if left_out else []
        if unranked:
            notes.append(unranked)
        for remark in wrap("; ".join(notes), console.width - 6):
            console.print(Text(f"      {remark}", style="dim"))
        if references:
            console.print(Text(f"      {references}", style="dim"), overflow="ellipsis", no_wrap=True)
        for remark in part:
            console.print(Text(f"      {remark}", style="dim"))

    def _failed(self, width: int) -> list[Text]:
        if not self.failures:
            return []
        lines = [Text()]
        for run in self.failures[:_FAILURES]:
            why = ": ".join(part for part in (run.error_class, run.reason) if part)
            line = Text(f"{run.state}  ", style="bold red" if run.state == "failed" else "yellow")
            line.append(printable(f"{run.model} seed {run.seed}: {' '.join(why.split())}"), style="not bold default")
            line.truncate(width, overflow="ellipsis")
            lines.append(line)
        if len(self.failures) > _FAILURES:
            lines.append(Text(f"and {len(self.failures) - _FAILURES} more: bench report --terminal"))
        return lines

    def _closing(
        self, width: int, ended: Mapping[str, str], seconds: float, report: Path | None, next_command: NextCommand
    ) -> list[Text]:
        lines = [Text(), Text(f"{count_ends(ended)}, in {duration(seconds)}.")]
        if len(self.groups) > 1:
            other_count = len(self.groups) - 1
            lines.append(
                Text(f"tables  bench report --terminal    {other_count} more table{'s' if other_count > 1 else ''}")
            )
        if report is not None:
            lines.append(Text(f"report  {printable(str(report))}"))
        lines += [Text(printable(line)) for line in next_command.lines(width)]
        return lines


def count_ends(ended: Mapping[str, str]) -> str:
    """How many runs ended how, as "88 runs finished, 2 re-used, 0 failed"."""
    counts = Counter(ended.values())
    finished = counts["finished"]
    parts = [f"{finished} run{'' if finished == 1 else 's'} finished"]
    if counts["reused"]:
        parts.append(f"{counts['reused']} re-used")
    parts.append(f"{counts['failed']} failed")
    if counts["skipped"]:
        parts.append(f"{counts['skipped']} skipped")
    return ", ".join(parts)


def _conditions(group: Group) -> str:
    """What the table is of: data, split, training, images and seeds."""
    parts = [group.name]
    if group.comparisons is not None:
        parts.append(f"{group.comparisons.images:,} images")
    seeds = {len(row.seeds) for row in group.rows}
    if group.is_as_given:
        parts.append("systems as they are")
    elif seeds:
        count = f"{min(seeds)}" if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)}"
        parts.append(f"{count} seed{'' if seeds == {1} else 's'}")
    return printable(", ".join(parts))


def _levels(table: Table, metric: str) -> str:
    """References and baselines with their scores, on one line."""
    index = table.index(metric)
    if index is None:
        return ""
    return "   ".join(f"{printable(line.model)} {line.cells[index].text}" for line in table.references)


def _best_rows(table: Table, lines: Sequence[Line], metric: str, width: int) -> RichTable:
    """Rank, model, score, interval and costs: as many columns as there is room for."""
    columns = [index for index in (table.index(RANK),) if index is not None and table.shows(index)]
    name_width = min(max(len(_name(line)) for line in lines), max(width - _BESIDE_NAME, _FEWEST_LETTERS))
    room = width - name_width - sum(_width(table, lines, index) for index in columns)
    numbers = []
    costs = [name for name in _COSTS if table.index(name) is not None]
    for key in dict.fromkeys((metric, INTERVAL, *costs)):
        index = table.index(key)
        if index is not None and table.shows(index) and _width(table, lines, index) <= room:
            numbers.append(index)
            room -= _width(table, lines, index)
    grid = RichTable(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="dim")
    for index in columns:
        grid.add_column(_heading(table, index), justify="right", no_wrap=True)
    grid.add_column("model", no_wrap=True, overflow="ellipsis", max_width=name_width)
    for index in numbers:
        grid.add_column(_heading(table, index), justify="right", no_wrap=True)
    for line in lines:
        grid.add_row(
            *(_shown(table, line, index) for index in columns),
            Text(_name(line)),
            *(_shown(table, line, index) for index in numbers),
        )
    return grid


def _name(line: Line) -> str:
    """The model, what sets it apart, and what a reader must know of it; how its training ended says its rank."""
    remarks = [line.differs] if line.differs else []
    remarks += [badge.label for badge in line.badges if badge.label not in TRAINING_LABELS]
    return printable(f"{line.model} ({', '.join(remarks)})" if remarks else line.model)


def _heading(table: Table, index: int) -> str:
    column = table.columns[index]
    if column.key in _COSTS[:2]:
        return "MAC"
    return _HEADINGS.get(column.key, column.name)


def _shown(table: Table, line: Line, index: int) -> Text:
    cell, key = line.cells[index], table.columns[index].key
    text = cell.text
    if key == RANK and cell.note:
        text = "-"
    elif key in _COSTS[:2]:
        text = text.removesuffix("MAC")
    return Text(text.replace("\u202f", " ").strip().replace(DASH, "-"))


def _width(table: Table, lines: Sequence[Line], index: int) -> int:
    return _GAP + max(len(_heading(table, index)), *(_shown(table, line, index).cell_len for line in lines))


def _with_option(words: Sequence[str], option: str, value: str) -> list[str]:
    """The words with this value of an option in place of any other."""
    kept, skip = [], False
    for word in words:
        if skip:
            skip = False
        elif word == option:
            skip = True
        elif not word.startswith(f"{option}="):
            kept.append(word)
    return [*kept, option, value]
