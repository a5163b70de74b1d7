"""A regression gate's findings for other programs: Markdown for pull requests, JUnit's XML, and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Final
from xml.etree import ElementTree

from reports.export.markdown import escape_markdown
from reports.tables.numbers import printable
from reports.text.differences import cost_line, interval, markdown_table, p_value, points
from reports.text.regression import (
    LABELS,
    TIMES,
    conclusion,
    detects,
    legend,
    metrics,
    name,
    notes,
    problems,
    slowdown,
)
from results.comparison.gate import GateResult, GateRow

_FAILED: Final = "❌"
_MARKS: Final = {"same": "✅", "within": "✅", "undecided": "⚠️", "improved": "⬆️", "refused": "❔"}


def markdown(result: GateResult) -> str:
    """A summary that pull requests show."""
    mark = _MARKS["refused" if result.refused else "undecided" if result.undecided else "same"]
    said = [*problems(result), *notes(result)]
    code = f"Baseline of {result.before}; here {result.after}."
    parts = [
        f"### {_FAILED if result.failed else mark} {escape_markdown(conclusion(result))}\n",
        markdown_table(("Model", "Result", "Bits", *TIMES.values()), map(_summary, result.rows)),
        *(_tests(result, metric) for metric in metrics(result)),
        "".join(f"- {escape_markdown(sentence)}\n" for sentence in said),
        f"{escape_markdown(f'{legend(result)} {code}')}\n",
    ]
    return "\n".join(filter(None, parts))


def _summary(row: GateRow) -> list[str]:
    result = f"{_MARKS.get(row.status, _FAILED)} {LABELS[row.status]}"
    return [escape_markdown(name(row)), result, row.exact, *(slowdown(row, cost) for cost in TIMES)]


def _tests(result: GateResult, metric: str) -> str:
    lines = (
        (
            escape_markdown(name(row)),
            escape_markdown(tested.split),
            points(tested.difference.before),
            points(tested.difference.after),
            points(tested.difference.difference, "+"),
            interval(tested.difference.low, tested.difference.high),
            p_value(tested.difference.adjusted),
            LABELS[tested.verdict],
            tested.over,
            detects(tested),
        )
        for row in result.rows
        for tested in row.tests
        if tested.metric == metric
    )
    numbers = ("Before", "Now", "Change", "95 %", "p")
    headings = (escape_markdown(metric), "Split", *numbers, "Verdict", "Tested", "Smallest fall seen")
    return markdown_table(headings, lines)


def junit(result: GateResult) -> str:
    """JUnit's XML: one case a test, one for bits, one a timed cost, and one for what a row is beyond these."""
    cases = [case for row in result.rows for case in _cases(row, result)]
    counts = {kind: str(sum(case.find(kind) is not None for case in cases)) for kind in ("failure", "error", "skipped")}
    suite = ElementTree.Element(
        "testsuite",
        name="bench regress",
        tests=str(len(cases)),
        failures=counts["failure"],
        errors=counts["error"],
        skipped=counts["skipped"],
    )
    suite.extend(cases)
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    written: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return written.decode() + "\n"


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
        said = f"{numbers}, {LABELS[tested.verdict]} ({tested.over}); smallest fall seen: {detects(tested)}"
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


def as_json(result: GateResult) -> str:
    """Everything, fractions unrounded."""
    content = {"exit_code": result.exit_code, "conclusion": conclusion(result), **asdict(result)}
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
