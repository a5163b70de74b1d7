"""How `bench evaluate` prints the scores of one file of captions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.cli.output import echo, format_table

if TYPE_CHECKING:
    from harness.data.formats.references import References
    from harness.metrics.evaluator import Report
    from harness.metrics.more.measured import Measured


def print_scores(report: Report, references: References) -> None:
    """Scores times 100, as papers show them."""
    from harness.data.nocaps import describe_domains
    from harness.metrics.contract import OVERALL
    from reports.tables.numbers import bounds, percent
    from results.statistics.significance import RESAMPLES, SEED

    domains, overall = report.evaluation.domains, report.evaluation.scores[OVERALL]

    def cell(metric: str, domain: str = OVERALL) -> str:
        value = report.quantity(metric, domain).value
        return "-" if value is None else f"{100 * value:.2f}"

    rows = []
    for metric in dict.fromkeys([*overall, *(name for domain in domains for name in report.evaluation.scores[domain])]):
        own = ["", ""]  # of domains alone
        if metric in overall:
            found = report.quantity(metric)
            own = [cell(metric), bounds(found.low, found.high, percent)]
        rows.append([metric, *own, *(cell(metric, domain) for domain in domains)])
    echo(f"{len(report.evaluation.ids)} images of {references.name}")
    header = ["metric", "score", "95 % interval", *(f"{domain} ({len(ids)})" for domain, ids in domains.items())]
    echo(format_table(header, rows, "table"), nl=False)
    for metric in overall:
        if (quantity := report.quantity(metric)).value is None:
            echo(f"{metric}: {quantity.reason or ''}")
    if domains:
        echo(f"domains: {describe_domains({domain: len(members) for domain, members in domains.items()})}")
    echo(f"scores x100; interval over images, {RESAMPLES} resamples, seed {SEED}")
    echo(report.signature)


def print_more(found: Measured) -> None:
    """A line a metric: its value with the interval, and which direction is better; then what it measures, or lacks."""
    from reports.tables.numbers import bounds
    from results.runs.more_metrics import BETTER, MORE_METRICS, base_name, depends_on, more_order

    rows, notes = [], []
    for name in (order := more_order(found.values)):
        quantity, metric = found.values[name], MORE_METRICS[base_name(name)]
        show = "{:.4g}".format if not metric.share else lambda share: f"{100 * share:.2f}"
        value = "-" if quantity.value is None else show(quantity.value)
        rows.append([base_name(name), BETTER[metric.better], value, bounds(quantity.low, quantity.high, show)])
        notes.append(f"{name}: {quantity.reason}" if quantity.reason else f"{base_name(name)}: {metric.meaning}")
    echo(format_table(["metric", "better", "value", "95 % interval"], rows, "table", texts=2))
    for model in dict.fromkeys(filter(None, map(depends_on, order))):
        notes.append(f"{', '.join(base_name(name) for name in order if depends_on(name) == model)} by {model}")
    echo("\n".join([*notes, "fractions x100, words and vocabulary as counted"]))
