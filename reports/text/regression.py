"""What became of trained runs: on an 80-column terminal, Markdown for pull requests, and JSON."""

from collections import Counter
from dataclasses import asdict
from itertools import chain
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from reports.tables.numbers import DASH
from reports.text.grid import Grid, bullets, escape_markdown, indented, interval, p_value, points, ratio
from results.comparison.gate import IDENTICAL, GateResult, GateRow, Status, Tested
from results.statistics.architecture import OVER_IMAGES, OVER_SEEDS
from results.text import printable

_LABELS: Final[dict[Status, str]] = {
    "same": "as before",
    "within": "within tolerance",
    "undecided": "undecided",
    "improved": "improved",
    "changed": "changed",
    "regressed": "REGRESSED",
    "missing": "MISSING",
    "refused": "not judged",
}
_TIMES: Final = {"train_seconds": "Training", "latency_median": "Latency", "caption_images_per_second": "Captions"}
_STYLES: Final = {
    "undecided": "bold yellow",
    "improved": "green",
    "changed": "bold red",
    "regressed": "bold red",
    "missing": "bold red",
    "refused": "yellow",
}
_FAILED: Final = "❌"
_MARKS: Final = {"same": "✅", "within": "✅", "undecided": "⚠️", "improved": "⬆️", "refused": "❔"}
_HOW: Final = {
    OVER_SEEDS: f"{OVER_SEEDS.capitalize()}: t, seeds unpaired, images paired.",
    OVER_IMAGES: f"{OVER_IMAGES.capitalize()}: paired sign flips, which say nothing of other seeds.",
}
_POWER: Final = "Smallest fall seen: the one that the test finds four times in five. "
_UPDATE: Final = "If it is meant, write a new baseline with bench regress --update."


def print_findings(result: GateResult, console: Console) -> None:
    """Print every row's outcome, the tests metric by metric, and why what fails does."""
    console.print(Text(f"Baseline of {printable(result.before)}; here {printable(result.after)}", style="dim"))
    console.print(Text(conclusion(result), style=_style(result)))
    for sentence in chain.from_iterable(row.reasons for row in result.rows):
        console.print(indented(sentence, _style(result)))
    for grid in _grids(result):
        console.print()
        console.print(grid.rich())
    console.print()
    for sentence in _notes(result):
        console.print(indented(sentence, "dim"))
    console.print(Text(_legend(result), style="dim"))


def markdown(result: GateResult) -> str:
    """A summary that pull requests show."""
    mark = _MARKS["refused" if result.refused else "undecided" if result.undecided else "same"]
    code = f"Baseline of {result.before}; here {result.after}."
    parts = [
        f"### {_FAILED if result.failed else mark} {escape_markdown(conclusion(result))}\n",
        bullets(chain.from_iterable(row.reasons for row in result.rows)),
        *(grid.markdown() for grid in _grids(result, marked=True)),
        bullets(_notes(result)),
        f"{escape_markdown(f'{_legend(result)} {code}')}\n",
    ]
    return "\n".join(filter(None, parts))


def _test_cells(tested: Tested) -> tuple[str, ...]:
    """Before, now, change, its interval, p and verdict."""
    found = tested.difference
    numbers = (points(found.before), points(found.after), points(found.difference, "+"))
    return (*numbers, interval(found.low, found.high), p_value(found.adjusted), _LABELS[tested.verdict])


def content(result: GateResult) -> dict[str, Any]:
    return {"conclusion": conclusion(result), **asdict(result)}


def _metrics(result: GateResult) -> list[str]:
    return list(dict.fromkeys(tested.metric for row in result.rows for tested in row.tests))


def _name(row: GateRow) -> str:
    return printable(row.model) + (f" ×{len(row.seeds)}" if len(row.seeds) > 1 else "")


def _notes(result: GateResult) -> list[str]:
    """What is worth knowing and blocks nothing."""
    found = [note for row in result.rows for note in row.notes]
    if result.fresh:
        found.append(f"not in the baseline: {', '.join(result.fresh)}")
    if may_be_meant(result) and not result.failed:
        found.append("the better scores are no floor yet: write a new baseline with bench regress --update")
    return found


def _legend(result: GateResult) -> str:
    least = ", ".join(f"{metric} {result.least(metric):g}" for metric in _metrics(result))
    if not least:
        return "Nothing could be tested."
    tested = {tested.over for row in result.rows for tested in row.tests} - {IDENTICAL}
    how = " ".join(_HOW[over] for over in _HOW if over in tested)
    return (
        f"Regressed: p < {result.alpha:g} (Holm's correction for {result.tests} tests) and at least this many points "
        f"lost: {least}. Within tolerance: the 95 % interval excludes such a fall; undecided: it does not. As before: "
        f"every image scores the same. {f'{how} ' if how else ''}{_POWER if how else ''}"
        "Bits: losses and captions as before to the last bit. Times: how many times as slow."
    )


def conclusion(result: GateResult) -> str:
    """One line that explains the exit code."""
    counts = Counter(row.status for row in result.rows)
    said, doubt = ", ".join(f"{counts[each]} {label.lower()}" for each, label in _LABELS.items() if counts[each]), ""
    if result.undecided:
        known = [tested.detectable for tested in result.undecided if tested.detectable is not None]
        most = f"of up to {points(max(known))} points" if len(known) == len(result.undecided) else "of any size"
        doubt = f" UNDECIDED: a fall {most} could have gone unseen."
    if result.failed:
        return f"Failed: {said}.{doubt}{f' {_UPDATE}' if may_be_meant(result) else ''}"
    return f"{'Could not be judged' if result.refused else 'Passed'}: {said}.{doubt}"


def may_be_meant(result: GateResult) -> bool:
    """Whether runs became different, or better than the baseline asks: a new one would hold what is now."""
    return (not result.exit_code and any(row.status == "improved" for row in result.rows)) or bool(result.failed)


def _style(result: GateResult) -> str:
    return "bold red" if result.exit_code else "bold yellow" if result.undecided else "bold green"


def _grids(result: GateResult, *, marked: bool = False) -> list[Grid]:
    """What became of every row; then, metric by metric, its tests and the falls that they would have seen."""
    of_metrics = (make(result, metric) for metric in _metrics(result) for make in (_tests, _powers))
    return [_rows(result, marked=marked), *(grid for grid in of_metrics if grid.rows)]


def _rows(result: GateResult, *, marked: bool) -> Grid:
    """A line a row: its outcome, with a sign for pages without colours, its bits, and how many times as slow it is."""
    rows = []
    for row in result.rows:
        label = _LABELS[row.status]
        status = f"{_MARKS.get(row.status, _FAILED)} {label}" if marked else Text(label, _STYLES.get(row.status, ""))
        slower = {change.name: change.slowdown for change in row.costs}
        rows.append((_name(row), status, row.exact, *(ratio(slower.get(cost)) for cost in _TIMES)))
    return Grid(("Model" if marked else "", "Result", "Bits", *_TIMES.values()), rows, 3)


def _tests(result: GateResult, metric: str) -> Grid:
    rows: list[list[str | Text]] = []
    for row, tested in _tested(result, metric):
        *cells, verdict = _test_cells(tested)
        rows.append([_name(row), tested.split, *cells, Text(verdict, _STYLES.get(tested.verdict, ""))])
    return Grid((metric, "Split", "Before", "Now", "Change", "95 %", "p", "Verdict"), rows, 2, 1)


def _powers(result: GateResult, metric: str) -> Grid:
    """What each test is over, and the fall that it finds four times in five; identical scores need none."""
    rows = []
    for row, tested in _tested(result, metric):
        if tested.over != IDENTICAL:
            size = DASH if tested.detectable is None else points(tested.detectable)
            rows.append((_name(row), tested.split, tested.over, size))
    return Grid(("", "Split", "Tested", "Smallest fall seen"), rows, 3)


def _tested(result: GateResult, metric: str) -> list[tuple[GateRow, Tested]]:
    return [(row, tested) for row in result.rows for tested in row.tests if tested.metric == metric]
