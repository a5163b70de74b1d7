"""A regression gate's findings for other programs: Markdown for pull requests, JUnit's XML, and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Final
from xml.etree import ElementTree

from reports.numbers import printable
from reports.regression import (
    LABELS,
    TIMES,
    conclusion,
    cost_line,
    interval,
    legend,
    metrics,
    name,
    notes,
    p_value,
    points,
    problems,
    slowdown,
)
from results.judgement import BLOCKING, Judgement, Row

_SPECIAL: Final = str.maketrans({character: f"\\{character}" for character in "\\`*_{}[]<>#|~"})
_MARKS: Final = {"same": "✅", "improved": "⬆️", "refused": "❔"}


def escape(text: str) -> str:
    """Text as Markdown that shows it as it is, on one line."""
    return " ".join(printable(text).translate(_SPECIAL).split())


def markdown_table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table whose first column is text, the others numbers; cells are Markdown already."""
    names = list(headings)
    lines = [names, ["---", *["---:"] * (len(names) - 1)], *(list(row) for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def markdown(judgement: Judgement) -> str:
    """A summary that pull requests show."""
    parts = [
        f"### {'❌' if judgement.failed else '❔' if judgement.refused else '✅'} {escape(conclusion(judgement))}\n",
        markdown_table(
            ("Model", "Result", "Bits", *TIMES.values()),
            (
                (
                    escape(name(row)),
                    f"{_MARKS.get(row.status, '❌')} {LABELS[row.status]}",
                    row.exact,
                    *(slowdown(row, cost) for cost in TIMES),
                )
                for row in judgement.rows
            ),
        ),
    ]
    for metric in metrics(judgement):
        lines = (
            (
                escape(name(row)),
                escape(tested.split),
                points(tested.difference.before),
                points(tested.difference.after),
                points(tested.difference.difference, "+"),
                interval(tested),
                p_value(tested.difference.adjusted),
                LABELS[tested.verdict],
            )
            for row in judgement.rows
            for tested in row.tests
            if tested.metric == metric
        )
        headings = (escape(metric), "Split", "Before", "Now", "Change", "95 %", "p", "Verdict")
        parts.append(markdown_table(headings, lines))
    parts += ["".join(f"- {escape(line)}\n" for line in lines) for lines in (problems(judgement), notes(judgement)) if lines]
    parts.append(f"{escape(legend(judgement))} Baseline of {escape(judgement.before)}; here {escape(judgement.after)}.\n")
    return "\n".join(parts)


def junit(judgement: Judgement) -> str:
    """JUnit's XML: one case for what a row is, one a test, one for bits and one a timed cost that may fail."""
    cases = [case for row in judgement.rows for case in _cases(row)]
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
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _cases(row: Row) -> list[ElementTree.Element]:
    whole = _case(row, "as expected")
    if row.status in BLOCKING or row.status == "refused":
        _end(whole, "failure" if row.status in BLOCKING else "error", row.reasons)
    bits = _case(row, "to the last bit")
    if row.exact != "equal":
        _end(bits, "failure" if row.exact == "different" and row.status == "changed" else "skipped", row.notes or row.reasons)
    cases = [whole, bits]
    for tested in row.tests:
        case = _case(row, f"{tested.metric} on {tested.split}")
        said = f"{points(tested.difference.before)} → {points(tested.difference.after)}, p {p_value(tested.difference.adjusted)}"
        if tested.verdict == "regressed":
            _end(case, "failure", [said])
        else:
            ElementTree.SubElement(case, "system-out").text = printable(said)
        cases.append(case)
    for change in row.costs:
        if change.slowdown is not None:
            case = _case(row, change.name)
            said = f"{cost_line(change)}, {change.slowdown:.2f} times as slow"
            ElementTree.SubElement(case, "system-out").text = printable(said)
            cases.append(case)
    return cases


def _case(row: Row, what: str) -> ElementTree.Element:
    seeds = ",".join(map(str, row.seeds))
    return ElementTree.Element("testcase", classname=printable(f"{row.model} seed {seeds}"), name=printable(what), time="0")


def _end(case: ElementTree.Element, how: str, reasons: Iterable[str]) -> None:
    lines = [printable(reason) for reason in reasons]
    ending = ElementTree.SubElement(case, how, message="; ".join(lines))
    ending.text = "\n".join(lines)


def as_json(judgement: Judgement) -> str:
    """Everything, fractions unrounded."""
    content = {"exit_code": judgement.exit_code, "conclusion": conclusion(judgement), **asdict(judgement)}
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
