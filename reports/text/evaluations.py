"""Scores of captions compared with earlier ones, and with other systems: in a terminal, Markdown and JSON."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from reports.numbers import DASH
from reports.text.grid import Grid, bullets, escape_markdown, interval, p_value, points
from results.comparison.changes import FEWEST_IMAGES, MetricChange
from results.comparison.limits import LimitedChange
from results.metrics import METRICS
from results.statistics.estimate import ALPHA, Estimate
from results.statistics.image_scores import ImageScores

_SHORT: Final = {metric.name: metric.short_heading for metric in METRICS}


def conclusion(changes: Sequence[LimitedChange]) -> str:
    """One line that explains the exit code; empty if no metric has a limit."""
    if all(limited.limit is None for limited in changes):
        return ""
    failures = [_failure(limited) for limited in changes if limited.is_exceeded]
    if failures:
        return f"Failed: {'; '.join(failures)}."
    return "Passed: no score fell further than its limit."


def remarks(changes: Sequence[LimitedChange]) -> list[str]:
    """Notes on drops that these images cannot show, and on missing intervals."""
    lines = []
    for limited in changes:
        change = limited.change
        limit = limited.limit
        images = change.estimate.n
        smallest = change.smallest
        if limited.is_unseen and smallest is not None:
            lines.append(
                f"{change.metric}: {images} images cannot show a drop of {limit:g}: "
                f"the smallest drop that they show is {100 * smallest:.1f}"
            )
        elif limit and images is not None and images < FEWEST_IMAGES:
            lines.append(f"{change.metric}: {images} images show no drop at all; a test needs {FEWEST_IMAGES}")
        if change.estimate.reason:
            lines.append(f"{change.metric}: {change.estimate.reason}")
    return lines


def changes_grid(changes: Sequence[LimitedChange]) -> Grid:
    """A row a metric, scores times 100."""
    headings = ["Metric", "Before", "Now", "Change", "95 %", "p", "Smallest"]
    rows = [_change_cells(limited.change) for limited in changes]
    if any(limited.limit is not None for limited in changes):
        headings.append("Limit")
        rows = [[*row, f"{limited.limit:g}"] for row, limited in zip(rows, changes, strict=True)]
    return Grid(headings, rows)


def legend(changes: Sequence[LimitedChange]) -> str:
    tests = sum(limited.change.estimate.p is not None for limited in changes)
    return (
        f"Scores x100. 95 % and p: paired sign flips over images{_correction(tests)}. "
        "Smallest: the smallest change that these images show, four times in five."
    )


def markdown(changes: Sequence[LimitedChange], title: str) -> str:
    """A summary that pull requests show."""
    mark = "\u274c" if any(limited.is_exceeded for limited in changes) else "\u2705"
    sentence = conclusion(changes)
    heading = f"{mark} {title}: {sentence}" if sentence else title
    parts = [
        f"### {escape_markdown(heading)}\n",
        changes_grid(changes).markdown(),
        bullets(remarks(changes)),
        f"{escape_markdown(legend(changes))}\n",
    ]
    return "\n".join(part for part in parts if part)


def content(change: MetricChange, limit: float | None = None) -> dict[str, Any]:
    """A change for JSON: fractions, and the limit in points."""
    described = {"images": change.split, "n": change.estimate.n, **change.numbers}
    return described if limit is None else {**described, "max_drop_points": limit}


def systems_grid(systems: Mapping[str, ImageScores], changes: Sequence[MetricChange]) -> Grid:
    """A row a system, then a row of p-values for each but the first; metrics that no system has are left out."""
    metrics = [metric for metric in _SHORT if any(metric in scores.scores for scores in systems.values())]
    rows = [[name, *(_score(scores.scores.get(metric)) for metric in metrics)] for name, scores in systems.items()]
    tested = {(change.model, change.metric): change for change in changes}
    for name in list(systems)[1:]:
        rows.append([f"p {name}", *(_p(tested[name, metric]) for metric in metrics)])
    return Grid(["System", *(_SHORT[metric] for metric in metrics)], rows)


def domains_grid(
    systems: Mapping[str, Mapping[str, ImageScores]], changes: Sequence[MetricChange], metric: str
) -> Grid:
    """The same of one metric, with a column for each domain."""
    domains = list(dict.fromkeys(domain for of_system in systems.values() for domain in of_system))
    rows = []
    for name, of_system in systems.items():
        scores = [of_system[domain].scores.get(metric) for domain in domains]
        rows.append([name, *map(_score, scores)])
    tested = {(change.model, change.split): change for change in changes}
    for name in list(systems)[1:]:
        rows.append([f"p {name}", *(_p(tested[name, domain]) for domain in domains)])
    return Grid([_SHORT[metric], *domains], rows)


def quoted(change: MetricChange, first: str) -> str:
    """A sentence on one system's change against the first, to quote."""
    subject = f"{change.metric} of {change.model}"
    estimate = change.estimate
    if estimate.value is None:
        return f"{subject} is not compared with that of {first}: {estimate.reason}"
    if change.identical:
        return f"{subject} equals that of {first} for every image"
    size = points(abs(estimate.value))
    if estimate.value < 0:
        return f"{subject} is {size} points below that of {first} ({_certainty(estimate.negated())})"
    return f"{subject} is {size} points above that of {first} ({_certainty(estimate)})"


def systems_legend(first: str, tests: int, *, has_domains: bool) -> str:
    legend = f"scores x100; p and 95 %: against {first}, paired sign flips over images{_correction(tests)}"
    return f"{legend}, of each domain by itself" if has_domains else legend


def _failure(limited: LimitedChange) -> str:
    """The failure of a change that exceeds its limit, as text."""
    change = limited.change
    fall = change.estimate.negated()
    if fall.value is None:
        return f"{change.metric} was not measured: {fall.reason}"
    text = f"{change.metric} fell by {points(fall.value)} points ({_certainty(fall)}), more than {limited.limit:g}"
    if fall.p is not None and fall.p >= ALPHA:
        text += "; the fall is not significant: it may be chance of these images"
    return text


def _certainty(estimate: Estimate) -> str:
    parts = []
    if estimate.low is not None and estimate.high is not None:
        parts.append(f"95 %: {points(estimate.low)} to {points(estimate.high)}")
    if estimate.p is not None:
        parts.append(f"p {p_value(estimate.p)}")
    return ", ".join(parts) or "not tested"


def _correction(tests: int) -> str:
    return f", with Holm's correction for {tests} tests" if tests > 1 else ""


def _change_cells(change: MetricChange) -> list[str]:
    estimate = change.estimate
    return [
        change.metric,
        _score(change.before),
        _score(change.after),
        DASH if estimate.value is None else points(estimate.value, "+"),
        "identical" if change.identical else interval(estimate.low, estimate.high),
        _p(change),
        _score(change.smallest),
    ]


def _score(value: float | None) -> str:
    return DASH if value is None else points(value)


def _p(change: MetricChange) -> str:
    p = change.estimate.p
    return DASH if p is None or change.identical else p_value(p)
