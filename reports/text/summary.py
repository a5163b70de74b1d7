"""The last screen of `bench run`: the results in 80 x 24 characters, and the next command."""

import os
import shlex
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
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
    """A suggested command and its purpose; the words are quoted for the shell."""

    words: tuple[str, ...]
    purpose: str
    added: str

    @classmethod
    def of(cls, words: Sequence[str], purpose: str, added: str = "") -> "NextCommand":
        """The command `bench WORDS`; `added` are the options that the last command did not have."""
        return cls(("bench", *map(shlex.quote, words)), purpose, added)

    def lines(self, width: int) -> list[str]:
        """The last lines of a screen: a command that can be copied, and its purpose."""
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
            suffix = f"with {self.added}" if self.added else "again"
            return [f"next    the same command {suffix}    {self.purpose}"]
        return lines


@dataclass(frozen=True)
class Summary:
    """The tables and failures of the runs of one command.

    Attributes:
        groups: the tables that have any of its runs.
        failures: its runs that did not finish.
        location: the options that name these results to another command, such as `--workspace FOLDER`.
    """

    groups: tuple[Group, ...]
    failures: tuple[Run, ...]
    location: tuple[str, ...] = ()

    @classmethod
    def read(cls, store: Store, keys: Collection[str], location: Sequence[str] = ()) -> "Summary":
        """Read the tables and failures of the runs of these keys."""
        key_set = set(keys)
        groups = []
        for group in leaderboard(store, every_metric=False):
            if any(key_set & set(row.keys) for row in (*group.rows, *group.references)):
                groups.append(group)
        failures = tuple(run for run in reading.failures(store) if run.key in key_set)
        return cls(tuple(groups), failures, tuple(location))

    @property
    def largest(self) -> Group | None:
        """The table with the most models; of several, the one of a test split, then of the longest training."""
        return max(
            self.groups,
            key=lambda group: (len(group.rows), len(group.references), group.split == "test", group.budget),
            default=None,
        )

    def next_command(self, words: Sequence[str]) -> NextCommand:
        """The suggestion for what to run after the command `bench WORDS`."""
        group = self.largest
        if self.failures:
            return NextCommand.of(words, "tries again what failed")
        if group is not None and any(len(row.seeds) == 1 for row in group.rows) and not group.is_as_given:
            purpose = "three seeds each, which ranks need"
            return NextCommand.of(_with_option(words, "--seeds", "3"), purpose, "--seeds 3")
        longer = None if group is None else longer_training([group])
        if longer:
            command = list(words)
            for option, value in longer.options:
                command = [*command, option, value] if option == "--set" else _with_option(command, option, value)
            times = "twice" if longer.times == 2 else f"{longer.times} times"
            added = " ".join(shlex.join(option) for option in longer.options)
            return NextCommand.of(command, f"trains {times} as long", added)
        return self.report_command("every table, caption and cost")

    def report_command(self, purpose: str) -> NextCommand:
        """The command that opens the report of these results."""
        return NextCommand.of(["report", "--open", *self.location], purpose)

    def print(
        self, console: Console, ended: Mapping[str, str], seconds: float, report: Path | None, next_command: NextCommand
    ) -> None:
        """Print the summary.

        Args:
            ended: the end of each run of the command, by key, such as "finished".
            seconds: of the whole command.
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
        """Print the headline and the best rows of a group, in about `room` lines."""
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
        notes = []
        if left_out == 1:
            notes.append("1 more row")
        elif left_out:
            notes.append(f"{left_out} more rows")
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
            cause = ": ".join(part for part in (run.error_class, run.reason) if part)
            line = Text(f"{run.state}  ", style="bold red" if run.state == "failed" else "yellow")
            line.append(printable(f"{run.model} seed {run.seed}: {' '.join(cause.split())}"), style="not bold default")
            line.truncate(width, overflow="ellipsis")
            lines.append(line)
        if len(self.failures) > _FAILURES:
            lines.append(Text(printable(f"and {len(self.failures) - _FAILURES} more: {self._tables_command}")))
        return lines

    @property
    def _tables_command(self) -> str:
        return shlex.join(["bench", "report", "--terminal", *self.location])

    def _closing(
        self, width: int, ended: Mapping[str, str], seconds: float, report: Path | None, next_command: NextCommand
    ) -> list[Text]:
        lines = [Text(), Text(f"{count_ends(ended)}, in {duration(seconds)}.")]
        other_count = len(self.groups) - 1
        if other_count > 0:
            others = "1 more table" if other_count == 1 else f"{other_count} more tables"
            lines.append(Text(printable(f"tables  {self._tables_command}    {others}")))
        if report is not None:
            lines.append(Text(f"report  {printable(os.path.normpath(report))}"))
        lines += [Text(printable(line)) for line in next_command.lines(width)]
        return lines


def count_ends(ended: Mapping[str, str]) -> str:
    """The counts of runs by their end, as in "88 runs finished, 2 re-used, 0 failed"."""
    counts = Counter(ended.values())
    finished = counts["finished"]
    parts = ["1 run finished" if finished == 1 else f"{finished} runs finished"]
    if counts["reused"]:
        parts.append(f"{counts['reused']} re-used")
    parts.append(f"{counts['failed']} failed")
    if counts["skipped"]:
        parts.append(f"{counts['skipped']} skipped")
    return ", ".join(parts)


def _conditions(group: Group) -> str:
    """The conditions of a table: data, split, training, images and seeds."""
    parts = [group.name]
    if group.comparisons is not None:
        parts.append(f"{group.comparisons.images:,} images")
    seeds = {len(row.seeds) for row in group.rows}
    if group.is_as_given:
        parts.append("systems as they are")
    elif seeds == {1}:
        parts.append("1 seed")
    elif len(seeds) == 1:
        parts.append(f"{min(seeds)} seeds")
    elif seeds:
        parts.append(f"{min(seeds)} to {max(seeds)} seeds")
    return printable(", ".join(parts))


def _levels(table: Table, metric: str) -> str:
    """References and baselines with their scores, on one line."""
    index = table.index(metric)
    if index is None:
        return ""
    return "   ".join(f"{printable(line.model)} {line.cells[index].text}" for line in table.references)


def _best_rows(table: Table, lines: Sequence[Line], metric: str, width: int) -> RichTable:
    """Rank, model, score, interval and costs: as many columns as fit."""
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
    """The model, how its settings differ, and its badges except those of its training's end."""
    remarks = [line.differs] if line.differs else []
    remarks += [badge.label for badge in line.badges if badge.label not in TRAINING_LABELS]
    return printable(f"{line.model} ({', '.join(remarks)})" if remarks else line.model)


def _heading(table: Table, index: int) -> str:
    column = table.columns[index]
    if column.key in _COSTS[:2]:
        return "MAC"
    return _HEADINGS.get(column.key, column.name)


def _shown(table: Table, line: Line, index: int) -> Text:
    cell = line.cells[index]
    key = table.columns[index].key
    text = cell.text
    if key == RANK and cell.note:
        text = "-"
    elif key in _COSTS[:2]:
        text = text.removesuffix("MAC")
    return Text(text.replace("\u202f", " ").strip().replace(DASH, "-"))


def _width(table: Table, lines: Sequence[Line], index: int) -> int:
    return _GAP + max(len(_heading(table, index)), *(_shown(table, line, index).cell_len for line in lines))


def _with_option(words: Sequence[str], option: str, value: str) -> list[str]:
    """The words with an option set to this value."""
    result: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word == option:
            skip = True
        elif not word.startswith(f"{option}="):
            result.append(word)
    return [*result, option, value]
