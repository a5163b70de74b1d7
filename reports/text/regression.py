"""What became of trained runs: on an 80-column terminal, Markdown for pull requests, JUnit's XML, and JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final
from xml.etree import ElementTree

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from reports.tables.numbers import DASH, printable
from reports.text.grid import Grid, cost_line, escape_markdown, interval, p_value, points, ratio
from results.comparison.gate import IDENTICAL, GateResult, GateRow, Status, Tested
from results.statistics.architecture import OVER_IMAGES, OVER_SEEDS

_LABELS: Final[dict[Status, str]] = {
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
_TIMES: Final = {"train_seconds": "Training", "latency_median": "Latency", "caption_images_per_second": "Captions"}
_STYLES: Final = {
    "undecided": "bold yellow",
    "improved": "green",
    "changed": "bold red",
    "slower": "bold red",
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


def print_gate_result(result: GateResult, console: Console) -> None:
    """Print every row's outcome, the tests metric by metric, and why what fails does."""
    console.print(Text(f"Baseline of {printable(result.before)}; here {printable(result.after)}", style="dim"))
    console.print(Text(conclusion(result), style=_style(result)))
    _print_sentences(_problems(result), _style(result), console)
    console.print()
    console.print(_rows(result).rich())
    for metric in _metrics(result):
        console.print()
        console.print(Text(f"{printable(metric)}, points", style="bold"))
        console.print(_tests(result, metric).rich())
        if (powers := _powers(result, metric)).rows:
            console.print()
            console.print(powers.rich())
    console.print()
    _print_sentences(_notes(result), "dim", console)
    console.print(Text(_legend(result), style="dim"))


def _print_sentences(sentences: Sequence[str], style: str, console: Console) -> None:
    for sentence in sentences:
        console.print(Padding(Text(printable(sentence), style=style), (0, 0, 0, 2), expand=False))


def markdown(result: GateResult) -> str:
    """A summary that pull requests show."""
    mark = _MARKS["refused" if result.refused else "undecided" if result.undecided else "same"]
    code = f"Baseline of {result.before}; here {result.after}."
    parts = [
        f"### {_FAILED if result.failed else mark} {escape_markdown(conclusion(result))}\n",
        "".join(f"- {escape_markdown(sentence)}\n" for sentence in _problems(result)),
        _rows(result, marked=True).markdown(),
        *(_tests(result, metric, everything=True).markdown() for metric in _metrics(result)),
        "".join(f"- {escape_markdown(sentence)}\n" for sentence in _notes(result)),
        f"{escape_markdown(f'{_legend(result)} {code}')}\n",
    ]
    return "\n".join(filter(None, parts))


def junit(suites: Iterable[ElementTree.Element]) -> str:
    """JUnit's XML of these suites."""
    root = ElementTree.Element("testsuites")
    root.extend(suites)
    ElementTree.indent(root)
    written: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return written.decode() + "\n"


def junit_suite(result: GateResult) -> ElementTree.Element:
    """JUnit's suite: one case a test, one for bits, one a timed cost, and one for what a row is beyond these."""
    cases = [case for row in result.rows for case in _cases(row, result)]
    counts = {kind: str(sum(case.find(kind) is not None for case in cases)) for kind in ("failure", "error", "skipped")}
    suite = ElementTree.Element(
        "testsuite",
        name="bench regress --train",
        tests=str(len(cases)),
        failures=counts["failure"],
        errors=counts["error"],
        skipped=counts["skipped"],
    )
    suite.extend(cases)
    return suite


def _cases(row: GateRow, result: GateResult) -> Iterator[ElementTree.Element]:
    """What a row is, where none of its other cases tells it: a failure is listed once."""
    others = list(_single_cases(row, result))
    ending = "failure" if result.blocks(row.status) else "skipped"
    if not any(case.find(ending) is not None for case in others) or row.status == "refused":
        yield _whole(row, result)
    yield from others


def _whole(row: GateRow, result: GateResult) -> ElementTree.Element:
    whole = _case(row, "as expected")
    if result.blocks(row.status):
        _end(whole, "failure", row.reasons)
    elif row.status == "undecided":
        _end(whole, "skipped", row.reasons)
    elif row.status == "refused":
        _end(whole, "error", row.reasons)
    return whole


def _single_cases(row: GateRow, result: GateResult) -> Iterator[ElementTree.Element]:
    if row.exact != "not judged":
        bits = _case(row, "to the last bit")
        if row.status == "changed":
            _end(bits, "failure", row.reasons)
        elif row.exact != "equal":
            _end(bits, "skipped", row.notes or row.reasons)
        yield bits
    for tested in row.tests:
        found = tested.difference
        numbers = f"{points(found.before)} → {points(found.after)}, p {p_value(found.adjusted)}"
        said = f"{numbers}, {_LABELS[tested.verdict]} ({tested.over}); smallest fall seen: {_detects(tested)}"
        case = _case(row, f"{tested.metric} on {tested.split}", said)
        if result.blocks(tested.verdict):
            _end(case, "failure", [said])
        elif tested.verdict == "undecided":
            _end(case, "skipped", [said])
        yield case
    for change in row.costs:
        if change.slowdown is not None:
            yield _case(row, change.name, f"{cost_line(change)}, {change.slowdown:.2f} times as slow")


def _case(row: GateRow, what: str, said: str = "") -> ElementTree.Element:
    seeds = ",".join(map(str, row.seeds))
    case = ElementTree.Element("testcase", classname=printable(f"{row.model} seed {seeds}"), name=printable(what))
    if said:
        ElementTree.SubElement(case, "system-out").text = printable(said)
    return case


def _end(case: ElementTree.Element, how: str, reasons: Iterable[str]) -> None:
    lines = [printable(reason) for reason in reasons]
    ending = ElementTree.SubElement(case, how, message="; ".join(lines))
    ending.text = "\n".join(lines)


def content(result: GateResult) -> dict[str, Any]:
    """Everything, fractions unrounded, for JSON."""
    return {"conclusion": conclusion(result), **asdict(result)}


def _metrics(result: GateResult) -> list[str]:
    """The metrics that were tested, in the baseline's order."""
    return list(dict.fromkeys(tested.metric for row in result.rows for tested in row.tests))


def _name(row: GateRow) -> str:
    """The row's model, with its seeds where there are several."""
    return printable(row.model) + (f" ×{len(row.seeds)}" if len(row.seeds) > 1 else "")


def _slowdown(row: GateRow, cost: str) -> str:
    """How many times as slow as before: 1.25 took a quarter longer, or did a fifth less in a second."""
    change = next((change for change in row.costs if change.name == cost), None)
    return ratio(None if change is None else change.slowdown)


def _detects(tested: Tested) -> str:
    """The smallest fall that a test finds four times in five; a dash where nothing was tested."""
    return DASH if tested.detectable is None else points(tested.detectable)


def _problems(result: GateResult) -> list[str]:
    """Why rows fail, could not be judged, or are undecided."""
    return [reason for row in result.rows for reason in row.reasons]


def _notes(result: GateResult) -> list[str]:
    """What is worth knowing and blocks nothing."""
    found = [note for row in result.rows for note in row.notes]
    if result.fresh:
        found.append(f"not in the baseline: {', '.join(result.fresh)}")
    if may_be_meant(result) and not result.failed:
        found.append("the better scores are no floor yet: write a new baseline with bench regress --update")
    return found


def _legend(result: GateResult) -> str:
    """How a verdict comes about."""
    least = ", ".join(f"{metric} {result.settings.least(metric):g}" for metric in _metrics(result))
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
    said = ", ".join(f"{counts[status]} {label.lower()}" for status, label in _LABELS.items() if counts[status])
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


def _rows(result: GateResult, *, marked: bool = False) -> Grid:
    """A line a row: its outcome, with a sign for pages without colours, its bits, and how many times as slow it is."""
    rows = []
    for row in result.rows:
        label = _LABELS[row.status]
        status = f"{_MARKS.get(row.status, _FAILED)} {label}" if marked else Text(label, _STYLES.get(row.status, ""))
        rows.append((_name(row), status, row.exact, *(_slowdown(row, cost) for cost in _TIMES)))
    return Grid(("Model" if marked else "", "Result", "Bits", *_TIMES.values()), rows, 3)


def _tests(result: GateResult, metric: str, *, everything: bool = False) -> Grid:
    """The tests of a metric; with `everything`, what each is over and what it detects stand beside."""
    rows: list[list[str | Text]] = []
    for row, tested in _tested(result, metric):
        found = tested.difference
        numbers = (points(found.before), points(found.after), points(found.difference, "+"))
        verdict = Text(_LABELS[tested.verdict], _STYLES.get(tested.verdict, ""))
        cells = (_name(row), tested.split, *numbers, interval(found.low, found.high), p_value(found.adjusted), verdict)
        rows.append([*cells, *([tested.over, _detects(tested)] if everything else [])])
    headings = (metric if everything else "", "Split", "Before", "Now", "Change", "95 %", "p", "Verdict")
    return Grid((*headings, *(["Tested", "Smallest fall seen"] if everything else [])), rows, 2, 1)


def _powers(result: GateResult, metric: str) -> Grid:
    """What each test is over, and what it detects; identical scores need none."""
    tests = [(row, tested) for row, tested in _tested(result, metric) if tested.over != IDENTICAL]
    rows = [(_name(row), tested.split, tested.over, _detects(tested)) for row, tested in tests]
    return Grid(("", "Split", "Tested", "Smallest fall seen"), rows, 3)


def _tested(result: GateResult, metric: str) -> list[tuple[GateRow, Tested]]:
    return [(row, tested) for row in result.rows for tested in row.tests if tested.metric == metric]
