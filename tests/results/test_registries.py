"""The lines of metrics and costs: none stands twice, and each has its own place where an order is asked for."""

from collections import defaultdict

from results.costs import COSTS, THEMES, cost_order, leaderboard_costs
from results.metrics import DOMAIN_METRICS, LAST, METRICS, MORE_METRICS, metric_info, metric_order, metrics_by_domain


def test_no_name_and_no_heading_stands_twice() -> None:
    metrics = [metric.name for metric in (*METRICS, *DOMAIN_METRICS, *MORE_METRICS)]
    assert len({*metrics}) == len(metrics)
    assert len({cost.name for cost in COSTS}) == len(COSTS)
    headings = [info.short_heading for info in (*METRICS, *leaderboard_costs({cost.name for cost in COSTS}))]
    assert len({*headings}) == len(headings), "columns of one table"
    assert {cost.theme for cost in COSTS} <= {*THEMES}


def test_columns_that_have_a_priority_or_a_position_share_it_with_none() -> None:
    names = defaultdict(list)
    for info in (*METRICS, *COSTS):
        names[info.priority].append(info.name)
    del names[LAST]
    assert {priority: shared for priority, shared in names.items() if priority is not None and len(shared) > 1} == {}
    positions = [cost.position for cost in COSTS if cost.position is not None]
    assert len({*positions}) == len(positions)


def test_more_is_better_in_all_metrics_that_are_ranked_and_have_limits() -> None:
    assert {metric.name: metric.better for metric in METRICS if metric.better != "higher"} == {}


def test_the_metric_that_ranks_is_first_and_what_has_no_line_last() -> None:
    assert metric_order(["Polos", "SPICE", "BLEU-1", "CIDEr-D"]) == ["CIDEr-D", "BLEU-1", "SPICE", "Polos"]
    assert metric_info("Polos").priority is None, "scores computed elsewhere are not shown in a terminal"
    assert metrics_by_domain() == ["CIDEr-D", "CIDEr-D (df:domain)", "CIDEr-D (df:split)", "SPICE"]


def test_of_two_counts_of_a_caption_the_leaderboard_has_one() -> None:
    both = {"gmac_beam", "gmac_beam_mean_length", "parameters", "unknown"}
    assert [cost.name for cost in leaderboard_costs(both)] == ["parameters", "gmac_beam_mean_length"]
    assert [cost.name for cost in leaderboard_costs(both - {"gmac_beam_mean_length"})] == ["parameters", "gmac_beam"]
    assert cost_order(["unknown", "train_seconds", "parameters"]) == ["parameters", "train_seconds", "unknown"]
