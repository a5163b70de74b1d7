"""The leaderboard as tables for an 80-column terminal."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from reports.columns import RANK
from reports.numbers import DASH, percent
from reports.tables.boards import separated_by
from reports.tables.budget_table import budget_table
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

_APART = "reference, not ranked"
_LISTED_PLANNED = 5
_STYLES = {"failed": "bold red", "skipped": "yellow", "running": "cyan", "interrupted": "cyan", "planned": "dim"}


def print_leaderboard(
    store: Store,
    console: Console,
    metric: str = RANKING_METRIC,
    options: RankingOptions = RankingOptions(),
) -> None:
    """Print a table a comparability group, placed by `metric`, then the runs without a result and why."""
    groups = leaderboard(store, metric, options, every_metric=False)
    failures = reading.failures(store)  # before anything is printed: reading may fail
    joint, printed, columns = no_ranks(groups), set[str](), set[str]()
    for sentence in joint:
        _say(sentence, console, "")
    for group in groups:
        columns |= _print_group(group, groups, console, () if joint else verdict(group), printed)
    if not groups:
        console.print("No run has finished yet.")
    if compared := [(group, group.comparisons) for group in groups if group.comparisons is not None]:
        console.print()
        baselines = any(comparisons.baseline_tests for _, comparisons in compared)
        kinds = {group.is_as_given: comparisons for group, comparisons in reversed(compared)}
        for as_given, comparisons in sorted(kinds.items()):
            legend = _legend(comparisons, baselines, columns, as_given=as_given)
            if len(kinds) > 1:
                legend = f"{'Captions as given' if as_given else 'Several seeds or files'}. {legend}"
            _say(legend, console)
    if longer := needs_longer_training(groups):
        console.print()
        _say(longer, console, "yellow")
    if failures:
        _print_failures(failures, console)


def print_ablations(store: Store, console: Console) -> None:
    """Print every paper's table whose rows the presets of stored runs train, each score as printed and as measured.

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
    group: Group, groups: Sequence[Group], console: Console, sentences: Sequence[str], once: set[str]
) -> set[str]:
    """Print a group's tables; remarks that are in `once` were printed below an earlier one."""
    [table], _ = leaderboards([group], None, {})
    console.print()
    _say(group.name + (f", {group.track} track" if group.rows else ""), console, "bold")
    for sentence in sentences:
        _say(sentence, console, "")
    if (pairs := pair_table(group)) is not None:
        print_pair_table(pairs, console)
    shown, hidden = _fitted(table, group.metric, console)
    print_table(shown, console, group.metric)
    columns = f"Hidden columns (narrow terminal): {', '.join(hidden)}; bench report shows all." if hidden else ""
    _say_once((columns, absent_levels(group)), once, console)
    if group.separating:
        _say(f"Not comparable with this split's other tables; here {separated_by(group)}", console, "yellow")
    budgets = budget_table(group, groups, {})
    for further in (budgets, what_is_wrong(group, {}), more_metrics([group], {}), people(group, {})):
        if further:
            console.print()
            _say(f"{further.title}, {group.name}", console, "bold")
            print_table(further.table, console)
            _say_once((further.note, *further.table.sentences), once, console)
    return {column.short for column in shown.columns}


def print_pair_table(pairs: PairTable, console: Console) -> None:
    """Print who is better than whom, a letter a pair; columns are numbered as the rows are, digit below digit."""
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
    """Print a table, as many columns at once as there is room for, with its notes; that of the key `main` is bold.

    References stand apart. All names of one number of seeds say it once, in their heading.
    """
    lines = (*table.lines, *table.references)
    seeds = {len(line.runs) for line in table.lines} or {1}
    common_seeds = max(seeds) if len(seeds) == 1 else 1
    names = [_name(line, table, common_seeds) for line in lines]
    remaining = list(range(len(table.columns)))
    while remaining:
        room, chosen = console.width - _name_width(table), list[int]()
        for index in remaining:
            room -= _width(table, index, main)
            if room < 0 and chosen:
                break
            chosen.append(index)
        remaining = remaining[len(chosen) :]
        headings = [
            f"{common_seeds} seeds each" if common_seeds > 1 else "",
            *(table.columns[index].short for index in chosen),
        ]
        rich = Grid(headings, ()).rich()
        rich.columns[0].min_width = _name_width(table)
        for number, (name, line) in enumerate(zip(names, lines, strict=True)):
            if number == len(table.lines):
                rich.add_row(Text(_APART, style="dim italic"))
            cells = (_number(line, index, table, main) for index in chosen)
            rich.add_row(name, *cells, style="dim" if number >= len(table.lines) else "")
        console.print(rich)
    for note, mark in table.marks.items():
        _say(f"{mark}) {note}", console)


def _say_once(remarks: Iterable[str], printed: set[str], console: Console) -> None:
    for remark in dict.fromkeys(remark for remark in remarks if remark and remark not in printed):
        printed.add(remark)
        _say(remark, console)


def _fitted(table: Table, main: str, console: Console) -> tuple[Table, list[str]]:
    """The columns that have room, by their priority, and the headings of the others: no number may be cut."""
    priorities: dict[int, int] = {}
    for index, column in enumerate(table.columns):
        if column.priority is not None and table.shows(index):
            priorities[index] = -1 if column.key == main else column.priority
    room, chosen = console.width - _name_width(table), list[int]()
    for index in sorted(priorities, key=priorities.__getitem__):
        width = _width(table, index, main)
        if width <= room:
            room -= width
            chosen.append(index)
    return table.only(sorted(chosen)), [table.columns[index].short for index in priorities if index not in chosen]


def _width(table: Table, index: int, main: str) -> int:
    return 2 + max(
        len(table.columns[index].short), *(_number(line, index, table, main).cell_len for line in table.all_lines)
    )


def _name_width(table: Table) -> int:
    names = [_name(line, table, 1).plain for line in table.all_lines]
    if table.references:
        names.append(_APART)
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
    """The model, the number of its seeds where it is not said once for all, and what sets it apart."""
    name = Text(folded(printable(line.model)))
    if len(line.runs) > 1 and len(line.runs) != common_seeds:
        name.append(f" ×{len(line.runs)}", style="dim")
    for badge in line.badges:
        name.append(f" {table.marks[badge.note]})", style="dim")
    if line.differs:
        name.append(f"\n{folded(printable(line.differs))}", style="dim")
    return name


def _number(line: Line, index: int, table: Table, main: str) -> Text:
    """A cell, with the deviation over seeds in the `main` column; a dash where a note says why there is no place."""
    cell, key = line.cells[index], table.columns[index].key
    shown = DASH if key == RANK and cell.note else cell.text.removesuffix("MAC")
    text = Text(shown.replace("\u202f", " "), style="bold" if key == main else "")
    if key == main and cell.deviation_text:
        text.append(f" ±{cell.deviation_text}", style="not bold dim")
    if cell.note:
        text.append(f" {table.marks[cell.note]})", style="not bold dim")
    return text


def _print_failures(failures: Sequence[Run], console: Console) -> None:
    console.print()
    _say("Not finished", console, "bold")
    waiting = sum(failure.status == "planned" for failure in failures)
    many = waiting > _LISTED_PLANNED
    for failure in failures:
        if many and failure.status == "planned":
            continue
        line = Text(f"{failure.state:8}", style=_STYLES.get(failure.state, ""))
        line.append(f" {printable(failure.model)}, seed {failure.seed}", style="not bold default")
        console.print(line)
        what = ": ".join(printable(part) for part in (failure.error_class, failure.reason) if part)
        if what:
            console.print(Padding(Text(what, style="dim"), (0, 0, 0, 9)))
    if many:
        console.print(Text(f"planned  {waiting} more runs", style=_STYLES["planned"]))


def _print_ablation(table: AblationTable, group: Group, measured: Mapping[str, Row], console: Console) -> None:
    def show(label: str, values: Iterable[str], style: str = "") -> None:
        console.print(Text(f"  {label:<20}" + "".join(f"{value:>7}" for value in values), style=style))

    first = table.rows[0].first
    beam = NOT_STATED if first.beam is None else str(first.beam)
    console.print()
    console.print(Text(f"{source(first)}: printed and measured", style="bold"))
    printed = f"printed on {first.split or NOT_STATED}, {first.objective or NOT_STATED}, beam {beam}"
    own = f"measured on {group.dataset} {group.split}, beam {group.signature.get('beam', NOT_STATED)}"
    console.print(Text(f"{printed}; {own}; no conclusion where data, features or seeds differ"))
    show("", (metric_info(metric).short_heading for metric in table.metrics), "dim")
    for row in table.rows:
        scores = [f"{row.scores[metric].value:.1f}" if metric in row.scores else DASH for metric in table.metrics]
        trained: list[Row | None] = [measured[model] for model in row.models if model in measured]
        # The names of rows are longer than any column: they have lines of their own.
        for own_row in trained or [None]:
            console.print(Text(row.name if own_row is None else f"{row.name} [{own_row.model}]"))
            show("printed", scores)
            if own_row is not None:
                means = (own_row.mean(metric) for metric in table.metrics)
                label = f"measured, {len(own_row.seeds)} seed{'s' if len(own_row.seeds) > 1 else ''}"
                show(label, (DASH if mean is None else percent(mean) for mean in means))
