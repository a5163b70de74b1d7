"""What a comparison of recordings found: the first cause in front, for a terminal, Markdown and JSON."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from reports.numbers import listed
from reports.text.grid import escape_markdown, indented
from results.comparison.recording import Finding, Judged, Layer
from results.text import printable

TITLES: Final[dict[Layer, str]] = {
    "settings": "Settings as before",
    "data": "Sees and reads as before",
    "metrics": "Scores as before",
    "inference": "Inference as before",
    "first_steps": "First steps as before",
}
_SHOWN: Final = 3
_FILES: Final = 3
_LONGEST: Final = 60
_UPDATE: Final = (
    "If it is meant, write a new baseline: bench regress --update, with this command's --plugin and --baseline."
)


def conclusion(judged: Judged) -> str:
    if not judged.findings:
        return f"Passed: {sum(judged.checked.values())} quantities are as before, up to rounding."
    text = f"Failed: {describe_finding(judged.findings[0])}."
    further_count = len(judged.findings) - 1
    if further_count == 1:
        text += " And 1 more finding."
    elif further_count:
        text += f" And {further_count} more findings."
    return text


def describe_finding(finding: Finding) -> str:
    """A finding as a sentence without its full stop."""
    quantity = finding.quantity if not finding.model else f"{finding.model}: {finding.quantity}"
    values = f"{_short(finding.before)} → {_short(finding.after)}"
    if finding.layer == "settings":
        return f"setting {finding.position}: {values}"
    size = "" if finding.size is None else f", {finding.size:.3g} times the tolerance"
    count = f" ({finding.differing_count} of {finding.count})" if finding.count > 1 else ""
    return f"{quantity}, {finding.axis} {finding.position}: {values}{size}{count}"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _likely(finding: Finding) -> str:
    return f"Look first in {listed(finding.likely, most=_FILES)}"


def _groups(judged: Judged) -> Iterator[tuple[Layer, str, list[Finding]]]:
    for layer, model in judged.checked:
        yield layer, model, [finding for finding in judged.findings if (finding.layer, finding.model) == (layer, model)]


def _title(layer: Layer, model: str) -> str:
    return printable(f"{TITLES[layer]}: {model}" if model else TITLES[layer])


def _sides(judged: Judged) -> str:
    platform = f"; {', '.join(judged.other_platform)}" if judged.other_platform else ""
    return f"Baseline of {judged.before}; here {judged.after}{platform}. {judged.seconds:.0f} s."


def print_findings(judged: Judged, console: Console) -> None:
    """Print the conclusion, the files to look at, and each layer's outcome."""
    style = "bold red" if judged.findings else "bold green"
    console.print(Text(printable(f"bench regress: {conclusion(judged)}"), style=style))
    if judged.findings and judged.findings[0].likely:
        console.print(indented(_likely(judged.findings[0]), "bold"))
    console.print()
    for layer, model, findings in _groups(judged):
        if not findings:
            console.print(Text(f"  ok      {_title(layer, model)}", style="green"))
            continue
        console.print(Text(f"  DIFFERS {_title(layer, model)}", style="bold red"))
        for finding in findings[:_SHOWN]:
            console.print(indented(describe_finding(finding), by=10))
        remaining = len(findings) - _SHOWN
        if remaining > 0:
            console.print(indented(f"and {remaining} more", "dim", 10))
    for tie in judged.ties:
        console.print(indented(tie, "dim"))
    console.print()
    console.print(Text(printable(_sides(judged)), style="dim"))


def markdown(judged: Judged) -> str:
    """A summary that pull requests show."""
    lines = [f"### {'❌' if judged.findings else '✅'} {escape_markdown(conclusion(judged))}\n"]
    if judged.findings:
        if judged.findings[0].likely:
            lines.append(f"{escape_markdown(_likely(judged.findings[0]))}\n")
        lines.append(f"{_UPDATE}\n")
    lines += ["| | Layer | First findings |", "| --- | --- | --- |"]
    for layer, model, findings in _groups(judged):
        first_findings = "<br>".join(escape_markdown(describe_finding(finding)) for finding in findings[:_SHOWN])
        suffix = f"<br>and {len(findings) - _SHOWN} more" if len(findings) > _SHOWN else ""
        lines.append(
            f"| {'❌' if findings else '✅'} | {escape_markdown(_title(layer, model))} | {first_findings}{suffix} |"
        )
    lines += ["", *(f"- {escape_markdown(tie)}" for tie in judged.ties), escape_markdown(_sides(judged)), ""]
    return "\n".join(lines)


def content(judged: Judged) -> dict[str, Any]:
    fields = asdict(judged)
    fields["checked"] = [
        {"layer": layer, "model": model, "quantities": count} for (layer, model), count in judged.checked.items()
    ]
    return {"conclusion": conclusion(judged), **fields}
