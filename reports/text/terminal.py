"""The leaderboard as tables for an 80-column terminal."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from reports.columns import RANK
from reports.numbers import DASH, percent
from reports.tables.boards import separated_by
from reports.tables.budget_table import budget_table
from reports.tables.contents import largest_first
from reports.tables.facts import NOT_STATED
from reports.tables.leaderboards import absent_levels, leaderboards, more_metrics, people
from reports.tables.printed import source
from reports.tables.scene_facts import what_is_wrong
from reports.tables.table import Line, Table
from reports.tables.verdict import PAIRS_MEANING, PairTable, needs_longer_training, no_ranks, pair_table, verdict
from reports.text.grid import Grid, folded
from results.costs import cost_legends
from results.metrics import RANKING_METRIC, metric_info
from results.published.scores import AblationTable, ablation_tables
from results.runs import reading
from results.runs.leaderboard import Group, Row, leaderboard
from results.runs.run import Run
from results.runs.standings import Comparisons, RankingOptions
from results.store.store import Store
from results.text import printable

_ON_A_SCREEN = 2
"""Tables; where more are printed, the answer is repeated below them."""
_REFERENCES_HEADING = "reference, not ranked"
_LISTED_PLANNED = 5
_STYLES = {"failed": "bold red", "skipped": "yellow", "running": "cyan", "interrupted": "cyan", "planned": "dim"}


def print_leaderboard(
    store: Store,
    console: Console,
    metric: str = RANKING_METRIC,
    options: RankingOptions = RankingOptions(),
) -> None:
    """Print a table for each comparability group, ranked by `metric`, then the runs without a result and the reason."""
    groups = leaderboard(store, metric, options, every_metric=False)
    failures = reading.failures(store)  # before anything is printed: reading may fail
    joint_sentences = no_ranks(groups)
    printed: set[str] = set()
    columns: set[str] = set()
    for sentence in joint_sentences:
        _say(sentence, console, "")
    for group in groups:
        columns |= _print_group(group, groups, console, () if joint_sentences else verdict(group), printed)
    if not groups:
        console.print("No run has finished yet.")
    compared = [(group, group.comparisons) for group in groups if group.comparisons is not None]
    if compared:
        console.print()
        baselines = any(comparisons.baseline_tests for _, comparisons in compared)
        kinds = {group.is_as_given: comparisons for group, comparisons in reversed(compared)}
        for as_given, comparisons in sorted(kinds.items()):
            legend = _legend(comparisons, baselines, columns, as_given=as_given)
            if len(kinds) > 1:
                legend = f"{'Captions as given' if as_given else 'Several seeds or files'}. {legend}"
            _say(legend, console)
    warning = needs_longer_training(groups)
    if warning:
        console.print()
        _say(warning, console, "yellow")
    if failures:
        _print_failures(failures, console)
    if len(groups) > _ON_A_SCREEN and not joint_sentences:
        main = min(groups, key=largest_first)
        console.print()
        for sentence in verdict(main):
            _say(sentence, console, "bold")
        _say(f"This is the first of {len(groups)} tables; bench export leaderboard --table N prints one.", console)


def print_ablations(store: Store, console: Console) -> None:
    """Print papers' ablation tables that presets of stored runs train, with printed and measured scores.

    Measured scores are means over seeds; a row that was not trained has none.
    """
    keys_by_preset: dict[str, set[str]] = {}
    for run in reading.finished(store):
        keys_by_preset.setdefault((run.config.get("preset") or {}).get("name", ""), set()).add(run.key)
    tables = {preset: ablation_tables(preset) for preset in keys_by_preset}
    groups = [group for group in leaderboard(store) if group.split == "test"] if any(tables.values()) else []
    for preset, keys in keys_by_preset.items():
        for table in tables[preset]:
            for group in groups:
                measured = {row.model: row for row in group.rows if any(key in keys for key in row.keys)}
                if any(measured.keys() & set(row.models) for row in table.rows):
                    _print_ablation(table, group, measured, console)


def _say(text: str, console: Console, style: str = "dim") -> None:
    console.print(Text(printable(text), style=style))


def _print_group(
    group: Group, groups: Sequence[Group], console: Console, sentences: Sequence[str], printed: set[str]
) -> set[str]:
    """Print a group's tables; returns the headings of the columns.

    Remarks in `printed` are not repeated; new ones are added to it.
    """
    [table], _ = leaderboards([group], None, {})
    console.print()
    title = group.name
    if group.rows:
        title += f", {group.track} track"
    _say(title, console, "bold")
    for sentence in sentences:
        _say(sentence, console, "")
    pairs = pair_table(group)
    if pairs is not None:
        print_pair_table(pairs, console)
    fitting, hidden = _fitted(table, group.metric, console)
    print_table(fitting, console, group.metric)
    columns = f"Hidden columns (narrow terminal): {', '.join(hidden)}; bench report shows all." if hidden else ""
    _say_once((columns, absent_levels(group)), printed, console)
    if group.separating:
        _say(f"Not comparable with this split's other tables; here {separated_by(group)}", console, "yellow")
    budgets = budget_table(group, groups, {})
    for section in (budgets, what_is_wrong(group, {}), more_metrics([group], {}), people(group, {})):
        if section:
            console.print()
            _say(f"{section.title}, {group.name}", console, "bold")
            print_table(section.table, console)
            _say_once((section.note, *section.table.sentences), printed, console)
    return {column.short for column in fitting.columns}


def print_pair_table(pairs: PairTable, console: Console) -> None:
    """Print which models are better, one letter for each pair; columns are numbered as rows, digits vertically."""
    names = [f"{index:>2} {printable(name)}" for index, (name, _) in enumerate(pairs, start=1)]
    width = max(map(len, names)) + 1
    letter_width = 2 if width + 2 * len(names) <= console.width else 1
    digits = len(str(len(names)))
    for position in range(digits):
        head = (f"{index:>{digits}}"[position] for index in range(1, len(names) + 1))
        line = " " * width + "".join(f"{digit:>{letter_width}}" for digit in head)
        console.print(Text(line, style="dim"), soft_wrap=True)
    for name, (_, cells) in zip(names, pairs, strict=True):
        letters = "".join(f"{cell.letter if cell else chr(92):>{letter_width}}" for cell in cells)
        console.print(Text(f"{name:<{width}}{letters}"), soft_wrap=True)
    _say(f"{PAIRS_MEANING}.", console)


def print_table(table: Table, console: Console, main: str = "") -> None:
    """Print a table and its notes, in several blocks if the terminal is narrow; the column `main` is bold.

    References follow under their own heading. If all rows have as many seeds, the heading states the number.
    """
    lines = (*table.lines, *table.references)
    seeds = {len(line.runs) for line in table.lines} or {1}
    common_seeds = max(seeds) if len(seeds) == 1 else 1
    names = [_name(line, table, common_seeds) for line in lines]
    remaining = list(range(len(table.columns)))
    while remaining:
        room = console.width - _name_width(table)
        indices: list[int] = []
        for index in remaining:
            room -= _width(table, index, main)
            if room < 0 and indices:
                break
            indices.append(index)
        remaining = remaining[len(indices) :]
        headings = [
            f"{common_seeds} seeds each" if common_seeds > 1 else "",
            *(table.columns[index].short for index in indices),
        ]
        rich = Grid(headings, ()).rich()
        rich.columns[0].min_width = _name_width(table)
        for row_index, (name, line) in enumerate(zip(names, lines, strict=True)):
            if row_index == len(table.lines):
                rich.add_row(Text(_REFERENCES_HEADING, style="dim italic"))
            cells = (_number(line, index, table, main) for index in indices)
            rich.add_row(name, *cells, style="dim" if row_index >= len(table.lines) else "")
        console.print(rich)
    for note, mark in table.marks.items():
        _say(f"{mark}) {note}", console)


def _say_once(remarks: Iterable[str], printed: set[str], console: Console) -> None:
    for remark in dict.fromkeys(remark for remark in remarks if remark and remark not in printed):
        printed.add(remark)
        _say(remark, console)


def _fitted(table: Table, main: str, console: Console) -> tuple[Table, list[str]]:
    """The table with the columns that fit, by priority, and the headings of the others: no number may be cut."""
    priorities: dict[int, int] = {}
    for index, column in enumerate(table.columns):
        if column.priority is not None and table.shows(index):
            priorities[index] = -1 if column.key == main else column.priority
    room = console.width - _name_width(table)
    indices: list[int] = []
    for index in sorted(priorities, key=priorities.__getitem__):
        width = _width(table, index, main)
        if width <= room:
            room -= width
            indices.append(index)
    return table.only(sorted(indices)), [table.columns[index].short for index in priorities if index not in indices]


def _width(table: Table, index: int, main: str) -> int:
    return 2 + max(
        len(table.columns[index].short), *(_number(line, index, table, main).cell_len for line in table.all_lines)
    )


def _name_width(table: Table) -> int:
    names = [_name(line, table, 1).plain for line in table.all_lines]
    if table.references:
        names.append(_REFERENCES_HEADING)
    return max(14, *(len(part) for name in names for part in name.split("\n")))


def _legend(comparisons: Comparisons, baselines: bool, columns: Collection[str], *, as_given: bool) -> str:
    unranked = "A model that is not significantly better than every baseline has no rank. " if baselines else ""
    rank = f"Rank: the ranks that the differences in {comparisons.metric} between all rows allow, "
    if as_given:
        test = "between these captions: paired sign-flip tests over images."
        return f"{rank}{test} {unranked}95 %: interval over images, unless a note says otherwise."
    text = (
        f"{rank}over seeds and images, after these updates. False-alarm rate: 1-9 % of simulated tables of equal "
        f"models. {unranked}95 %: interval of the mean over seeds and images. ±: standard deviation over seeds."
    )
    costs = [f"{heading}: {legend}." for heading, legend in cost_legends().items() if heading in columns]
    return " ".join((text, *costs))


def _name(line: Line, table: Table, common_seeds: int) -> Text:
    """The model, the number of its seeds unless the heading states it, and how its settings differ."""
    name = Text(folded(printable(line.model)))
    if len(line.runs) > 1 and len(line.runs) != common_seeds:
        name.append(f" ×{len(line.runs)}", style="dim")
    for badge in line.badges:
        name.append(f" {table.marks[badge.note]})", style="dim")
    if line.differs:
        name.append(f"\n{folded(printable(line.differs))}", style="dim")
    return name


def _number(line: Line, index: int, table: Table, main: str) -> Text:
    """A cell, with the deviation over seeds in the `main` column; a dash if a note gives the reason for no rank."""
    cell = line.cells[index]
    key = table.columns[index].key
    content = DASH if key == RANK and cell.note else cell.text.removesuffix("MAC")
    text = Text(content.replace("\u202f", " "), style="bold" if key == main else "")
    if key == main and cell.deviation_text:
        text.append(f" ±{cell.deviation_text}", style="not bold dim")
    if cell.note:
        text.append(f" {table.marks[cell.note]})", style="not bold dim")
    return text


def _print_failures(failures: Sequence[Run], console: Console) -> None:
    console.print()
    _say("Not finished", console, "bold")
    waiting = sum(failure.status == "planned" for failure in failures)
    abbreviated = waiting > _LISTED_PLANNED
    for failure in failures:
        if abbreviated and failure.status == "planned":
            continue
        line = Text(f"{failure.state:8}", style=_STYLES.get(failure.state, ""))
        line.append(f" {printable(failure.model)}, seed {failure.seed}", style="not bold default")
        console.print(line)
        cause = ": ".join(printable(part) for part in (failure.error_class, failure.reason) if part)
        if cause:
            console.print(Padding(Text(cause, style="dim"), (0, 0, 0, 9)))
    if abbreviated:
        console.print(Text(f"planned  {waiting} more runs", style=_STYLES["planned"]))


def _print_ablation(table: AblationTable, group: Group, measured: Mapping[str, Row], console: Console) -> None:
    def show(label: str, values: Iterable[str], style: str = "") -> None:
        console.print(Text(f"  {label:<20}" + "".join(f"{value:>7}" for value in values), style=style))

    first = table.rows[0].first
    beam = NOT_STATED if first.beam is None else str(first.beam)
    console.print()
    console.print(Text(f"{source(first)}: printed and measured", style="bold"))
    printed = f"printed on {first.split or NOT_STATED}, {first.objective or NOT_STATED}, beam {beam}"
    here = f"measured on {group.dataset} {group.split}, beam {group.signature.get('beam', NOT_STATED)}"
    console.print(Text(f"{printed}; {here}; no conclusion where data, features or seeds differ"))
    show("", (metric_info(metric).short_heading for metric in table.metrics), "dim")
    for row in table.rows:
        scores = [f"{row.scores[metric].value:.1f}" if metric in row.scores else DASH for metric in table.metrics]
        trained: list[Row | None] = [measured[model] for model in row.models if model in measured]
        # Names of rows are longer than any column, so they get their own lines.
        for trained_row in trained or [None]:
            console.print(Text(row.name if trained_row is None else f"{row.name} [{trained_row.model}]"))
            show("printed", scores)
            if trained_row is not None:
                means = [trained_row.mean(metric) for metric in table.metrics]
                seeds = len(trained_row.seeds)
                label = "measured, 1 seed" if seeds == 1 else f"measured, {seeds} seeds"
                show(label, [DASH if mean is None else percent(mean) for mean in means])
