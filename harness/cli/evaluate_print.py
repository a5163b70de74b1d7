"""How `bench evaluate` prints the scores of one file of captions, and of several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from harness.cli.output import echo, format_table, print_notes

if TYPE_CHECKING:
    from harness.data.formats.references import References
    from harness.metrics.evaluator import Report
    from harness.metrics.more.measured import Measured
    from results.comparison.changes import MetricChange


def print_scores(report: Report, references: References, matched_by: str) -> None:
    """Scores times 100, as papers show them; `matched_by` says what names the images in both files."""
    from harness.data.nocaps import describe_domains
    from harness.metrics.contract import OVERALL
    from reports.numbers import bounds, percent
    from results.statistics.significance import RESAMPLES, SEED

    domains = report.evaluation.domains
    overall = report.evaluation.scores[OVERALL]

    def cell(metric: str, domain: str = OVERALL) -> str:
        value = report.quantity(metric, domain).value
        return "-" if value is None else f"{100 * value:.2f}"

    metrics = list(overall)
    for domain in domains:
        metrics += [metric for metric in report.evaluation.scores[domain] if metric not in metrics]
    rows = []
    for metric in metrics:
        # of a metric that domains alone have
        score = ""
        interval = ""
        if metric in overall:
            quantity = report.quantity(metric)
            score = cell(metric)
            interval = bounds(quantity.low, quantity.high, percent)
        rows.append([metric, score, interval, *(cell(metric, domain) for domain in domains)])
    echo(f"{len(report.evaluation.ids)} images of {references.name}, matched by {matched_by}")
    header = ["metric", "score", "95 % interval", *(f"{domain} ({len(ids)})" for domain, ids in domains.items())]
    echo(format_table(header, rows, "table"), nl=False)
    for metric in overall:
        quantity = report.quantity(metric)
        if quantity.value is None:
            echo(f"{metric}: {quantity.reason or ''}")
    if domains:
        echo(f"domains: {describe_domains({domain: len(members) for domain, members in domains.items()})}")
    echo(f"scores x100; interval over images, {RESAMPLES} resamples, seed {SEED}")
    echo(report.signature)


def print_systems(reports: Mapping[str, Report], references: References) -> dict[str, list[dict[str, Any]]]:
    """Scores of several files, and how each differs from the first; the differences by system, for JSON."""
    from harness.data.nocaps import describe_domains
    from harness.metrics.contract import OVERALL
    from harness.metrics.stored_scores import refuse_other_conditions
    from reports.text.evaluations import content, domains_grid, quoted, systems_grid, systems_legend
    from results.comparison.evaluations import compare_scores
    from results.metrics import RANKING_METRIC, metric_names

    names = list(reports)
    first = names[0]
    others = names[1:]
    for name in others:
        refuse_other_conditions(
            name, reports[name].signature, reports[first].signature, f"evaluate {first} and {name} one by one"
        )
    systems = {name: report.image_scores() for name, report in reports.items()}
    metrics = [metric for metric in metric_names() if any(metric in scores.scores for scores in systems.values())]
    compared = {name: systems[name] for name in others}
    changes = compare_scores(systems[first], compared, metrics, images=OVERALL)
    evaluation = reports[first].evaluation
    echo(f"{len(evaluation.ids)} images of {references.name}")
    echo(systems_grid(systems, changes).terminal(), nl=False)
    domains = evaluation.domains
    of_domains: list[MetricChange] = []
    if domains:
        by_domain = {
            name: {domain: report.image_scores(domain) for domain in domains} for name, report in reports.items()
        }
        for domain in domains:
            compared = {name: by_domain[name][domain] for name in others}
            of_domains += compare_scores(by_domain[first][domain], compared, [RANKING_METRIC], images=domain)
        echo()
        echo(domains_grid(by_domain, of_domains, RANKING_METRIC).terminal(), nl=False)
        echo(f"domains: {describe_domains({domain: len(members) for domain, members in domains.items()})}")
    reasons = dict.fromkeys(
        f"{metric}: {reason}" for scores in systems.values() for metric, reason in scores.reasons.items()
    )
    sentences = [quoted(change, first) for change in changes if change.metric == RANKING_METRIC]
    tests = sum(change.estimate.p is not None for change in changes)
    print_notes([*reasons, *sentences, systems_legend(first, tests, has_domains=bool(domains))], "table")
    echo(reports[first].signature)
    return {name: [content(change) for change in [*changes, *of_domains] if change.model == name] for name in others}


def print_more(measured: Measured) -> None:
    """A line a metric: its value with the interval, and which direction is better; then what it measures, or lacks."""
    from reports.numbers import bounds
    from results.metrics import BETTER, depends_on, more_metric_info, more_order

    rows = []
    notes = []
    names_by_model: dict[str, list[str]] = {}
    for name in more_order(measured.values):
        quantity = measured.values[name]
        metric = more_metric_info(name)
        show = _share if metric.number == "percent" else _plain_number
        value = "-" if quantity.value is None else show(quantity.value)
        rows.append([metric.name, BETTER[metric.better], value, bounds(quantity.low, quantity.high, show)])
        notes.append(f"{name}: {quantity.reason}" if quantity.reason else f"{metric.name}: {metric.meaning}")
        model = depends_on(name)
        if model:
            names_by_model.setdefault(model, []).append(metric.name)
    echo(format_table(["metric", "better", "value", "95 % interval"], rows, "table", texts=2))
    for model, names in names_by_model.items():
        notes.append(f"{', '.join(names)} by {model}")
    echo("\n".join([*notes, "fractions x100, words and vocabulary as counted"]))


def _share(value: float) -> str:
    return f"{100 * value:.2f}"


def _plain_number(value: float) -> str:
    return f"{value:.4g}"
