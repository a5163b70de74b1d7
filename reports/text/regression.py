"""A regression gate's findings on an 80-column terminal, and the words that all its formats share."""

from __future__ import annotations

from collections import Counter
from typing import Final

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from reports.tables.numbers import DASH, printable
from reports.text.differences import interval, p_value, points, ratio
from reports.text.layout import plain_table
from results.comparison.gate import IDENTICAL, GateResult, GateRow, Status, Tested
from results.statistics.architecture import OVER_IMAGES, OVER_SEEDS

LABELS: Final[dict[Status, str]] = {
    "same": "as before",
    "within": "within tolerance",
    "undecided": "undecided",
    "improved": "improved",
    "changed": "changed",
    "slower": "slower",
    "regressed": "REGRESSED",
    "missing": "MISSING",
    "refused": "not judged",
}
TIMES: Final = {"train_seconds": "Training", "latency_median": "Latency", "caption_images_per_second": "Captions"}
_STYLES: Final = {
    "undecided": "bold yellow",
    "improved": "green",
    "changed": "bold red",
    "slower": "bold red",
    "regressed": "bold red",
    "missing": "bold red",
    "refused": "yellow",
}
_HOW: Final = {
    OVER_SEEDS: f"{OVER_SEEDS.capitalize()}: t, seeds unpaired, images paired.",
    OVER_IMAGES: f"{OVER_IMAGES.capitalize()}: paired sign flips, which say nothing of other seeds.",
}
_POWER: Final = "Smallest fall seen: the one that the test finds four times in five. "
_UPDATE: Final = "If it is meant, write a new baseline with bench regress --update."


def print_gate_result(result: GateResult, console: Console) -> None:
    """Print every row's outcome, the tests metric by metric, and why what fails does."""
    console.print(Text(f"Baseline of {printable(result.before)}; here {printable(result.after)}", style="dim"))
    console.print(_rows(result))
    for metric in metrics(result):
        console.print()
        console.print(Text(f"{printable(metric)}, points", style="bold"))
        console.print(_tests(result, metric))
        if any(tested.metric == metric and tested.over != IDENTICAL for row in result.rows for tested in row.tests):
            console.print()
            console.print(_powers(result, metric))
    for style, sentences in ((_style(result), problems(result)), ("dim", notes(result))):
        if sentences:
            console.print()
        for sentence in sentences:
            console.print(Padding(Text(printable(sentence), style=style), (0, 0, 0, 2), expand=False))
    console.print()
    console.print(Text(legend(result), style="dim"))
    console.print(Text(conclusion(result), style=_style(result)))


def metrics(result: GateResult) -> list[str]:
    """The metrics that were tested, in the baseline's order."""
    return list(dict.fromkeys(tested.metric for row in result.rows for tested in row.tests))


def name(row: GateRow) -> str:
    """The row's model, with its seeds where there are several."""
    return printable(row.model) + (f" ×{len(row.seeds)}" if len(row.seeds) > 1 else "")


def slowdown(row: GateRow, cost: str) -> str:
    """How many times as slow as before: 1.25 took a quarter longer, or did a fifth less in a second."""
    change = next((change for change in row.costs if change.name == cost), None)
    return DASH if change is None else ratio(change.slowdown) or DASH


def detects(tested: Tested) -> str:
    """The smallest fall that a test finds four times in five; a dash where nothing was tested."""
    return DASH if tested.detectable is None else points(tested.detectable)


def problems(result: GateResult) -> list[str]:
    """Why rows fail, could not be judged, or are undecided."""
    return [reason for row in result.rows for reason in row.reasons]


def notes(result: GateResult) -> list[str]:
    """What is worth knowing and blocks nothing."""
    found = [note for row in result.rows for note in row.notes]
    if result.fresh:
        found.append(f"not in the baseline: {', '.join(result.fresh)}")
    if may_be_meant(result) and not result.failed:
        found.append("the better scores are no floor yet: write a new baseline with bench regress --update")
    return found


def legend(result: GateResult) -> str:
    """How a verdict comes about."""
    least = ", ".join(f"{metric} {result.settings.least(metric):g}" for metric in metrics(result))
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
    said = ", ".join(f"{counts[status]} {label.lower()}" for status, label in LABELS.items() if counts[status])
    doubt = _doubt(result)
    if result.failed:
        return f"Failed: {said}.{doubt}{f' {_UPDATE}' if may_be_meant(result) else ''}"
    return f"{'Could not be judged' if result.refused else 'Passed'}: {said}.{doubt}"


def may_be_meant(result: GateResult) -> bool:
    """Whether runs became different, or better than the baseline asks: a new one would hold what is now."""
    better = not result.exit_code and any(row.status == "improved" for row in result.rows)
    return better or any(row.status != "undecided" for row in result.failed)


def _doubt(result: GateResult) -> str:
    """What the undecided tests leave open, as a sentence."""
    if not result.undecided:
        return ""
    sizes = [tested.detectable for tested in result.undecided]
    known = [size for size in sizes if size is not None]
    most = f"of up to {points(max(known))} points" if len(known) == len(sizes) else "of any size"
    return f" UNDECIDED: a fall {most} could have gone unseen."


def _style(result: GateResult) -> str:
    return "bold red" if result.exit_code else "bold yellow" if result.undecided else "bold green"


def _rows(result: GateResult) -> Table:
    table = plain_table(("", "Result", "Bits"), TIMES.values())
    for row in result.rows:
        status = Text(LABELS[row.status], style=_STYLES.get(row.status, ""))
        table.add_row(Text(name(row)), status, row.exact, *(slowdown(row, cost) for cost in TIMES))
    return table


def _tests(result: GateResult, metric: str) -> Table:
    table = plain_table(("", "Split"), ("Before", "Now", "Change", "95 %", "p"), ("Verdict",))
    for row in result.rows:
        for tested in (tested for tested in row.tests if tested.metric == metric):
            found = tested.difference
            numbers = (points(found.before), points(found.after), points(found.difference, "+"))
            bounds = interval(found.low, found.high)
            verdict = Text(LABELS[tested.verdict], style=_STYLES.get(tested.verdict, ""))
            table.add_row(Text(name(row)), printable(tested.split), *numbers, bounds, p_value(found.adjusted), verdict)
    return table


def _powers(result: GateResult, metric: str) -> Table:
    """What each test is over, and what it detects; identical scores need none."""
    table = plain_table(("", "Split", "Tested"), ("Smallest fall seen",))
    for row in result.rows:
        for tested in (each for each in row.tests if each.metric == metric and each.over != IDENTICAL):
            table.add_row(Text(name(row)), printable(tested.split), tested.over, detects(tested))
    return table
