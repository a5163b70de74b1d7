"""Costs on the pages: bounds, noise, estimates and what a caption takes."""

from dataclasses import replace

from reports.columns import NOISY_KEY
from reports.html.sections import cost_sections
from reports.html.trade_offs import trade_off_sections
from reports.tables.leaderboards import leaderboards
from reports.tables.plot_data import bounded_cost
from results.records import Quantity
from results.runs.spreads import OtherMachine
from tests.reports.examples import contents, group, row, run


def test_splits_of_the_same_runs_share_their_costs() -> None:
    one, other = (
        replace(row(name), keys=(name,), costs={"parameters": Quantity(amount)})
        for name, amount in (("a", 1.0), ("b", 2.0))
    )
    runs = {"a": run(), "b": run()}
    test, nocaps = group(one, other), replace(group(other, one), split="nocaps")
    assert len(cost_sections(contents(test, nocaps, runs=runs))) == 1
    assert len(cost_sections(contents(test, group(one), runs=runs))) == 2


def test_the_time_of_scoring_is_no_cost_that_compares_captioners() -> None:
    costs = {"parameters": Quantity(7.0), "score_seconds": Quantity(3.0, unit="s")}
    rows = [replace(row(name), keys=(name,), costs=costs) for name in ("a", "b")]
    runs = {"a": replace(run(), costs=costs), "b": replace(run(), costs=costs)}
    [section] = cost_sections(contents(group(*rows), runs=runs))
    assert list(section.tables) == ["Size and computation"]
    assert "score_seconds" not in str(trade_off_sections(contents(group(*rows), runs=runs), {"a": 0, "b": 1}))
    only = [replace(each, costs={"score_seconds": costs["score_seconds"]}) for each in rows]
    assert cost_sections(contents(group(*only), runs=runs)) == []


def test_a_cost_is_bounded_by_its_margin_or_else_by_the_seeds() -> None:
    runs = {key: replace(run(), costs={"t": Quantity(value, unit="s")}) for key, value in (("a", 1.0), ("b", 3.0))}
    both = replace(row("m"), keys=("a", "b"), seeds=(1, 2), costs={"t": Quantity(2.0, unit="s")})
    assert bounded_cost(both, "t", runs) == Quantity(2.0, None, "s", 1.0, 3.0)
    quartiles = Quantity(2.0, None, "s", 1.9, 2.1)
    assert bounded_cost(replace(both, costs={"t": quartiles}), "t", runs) == quartiles
    timed = {"latency_median": quartiles, "latency_margin": Quantity(0.5, unit="s")}
    found = bounded_cost(replace(both, costs=timed), "latency_median", runs)
    assert (found.value, found.low, found.high) == (2.0, 1.5, 2.5), "quartiles are over images"
    assert bounded_cost(both, "other", runs).reason == "not measured for this run"


def test_the_generated_length_counts_in_leaderboard_and_plots() -> None:
    full = {"gmac_beam": Quantity(0.08, unit="GMAC")}
    said = full | {"gmac_beam_mean_length": Quantity(0.05, unit="GMAC")}
    for costs, name, text in ((said, "gmac_beam_mean_length", "50.0\u202fMMAC"), (full, "gmac_beam", "80.0\u202fMMAC")):
        rows = [
            replace(row(model, cider=cider), keys=(model,), costs=costs) for model, cider in (("a", 1.0), ("b", 2.0))
        ]
        [table], _ = leaderboards([group(*rows)], None, {})
        assert [column.key for column in table.columns] == ["CIDEr-D", "interval", name]
        assert [line.cells[2].text for line in table.lines] == [text] * 2
        runs = {model: replace(run(), costs=costs) for model in ("a", "b")}
        (section,) = trade_off_sections(contents(group(*rows), runs=runs), {"a": 0, "b": 1})
        assert [plot.title for plot in section.plots] == ["Computation"]
        assert [line.cells[2].text for line in section.tables[""].lines] == [text] * 2
        length = "mean" if costs is said else "full"
        assert f"MAC per caption of {length} length" in section.plots[0].drawn[0].series.title


def test_trade_offs_name_units_and_mark_latencies_that_are_noise() -> None:
    timed = {"latency_median": Quantity(0.25, unit="s"), "gmac_beam": Quantity(0.05, unit="GMAC")}
    steady, noisy = (
        replace(row(name, cider=cider), keys=(name,), costs=timed | {NOISY_KEY: Quantity(value)})
        for name, cider, value in (("m2", 1.0, 0.0), ("aoanet", 0.9, 1.0))
    )
    runs = {"m2": replace(run(), costs=steady.costs), "aoanet": replace(run(), costs=noisy.costs)}
    (section,) = trade_off_sections(contents(group(steady, noisy), runs=runs), {"m2": 0, "aoanet": 1})
    assert [column.name for column in section.tables[""].columns][1:4] == [
        "Best trade-off in", "Computation", "Latency",
    ]  # fmt: skip
    assert [line.cells[3].text for line in section.tables[""].lines] == ["250\u202fms", "~250\u202fms"]
    latency = next(plot for plot in section.plots if plot.title == "Latency")
    assert [mark.series.title.endswith("(noisy)") for mark in latency.drawn] == [False, True]


def test_trade_offs_are_of_one_machine() -> None:
    rows = [
        replace(
            row(name, cider=cider),
            keys=(name,),
            costs={"train_seconds": Quantity(value, unit="s"), "gmac_beam": Quantity(0.05, unit="GMAC")},
        )
        for name, cider, value in (("m2", 1.0, 30.0), ("aoanet", 0.9, 20.0), ("updown", 0.8, 1.0))
    ]
    rows[2] = replace(rows[2], other_machines={"train_seconds": OtherMachine("trained on EPYC", ())})
    runs = {each.model: replace(run(), costs=each.costs) for each in rows}
    (section,) = trade_off_sections(contents(group(*rows), runs=runs), {"m2": 0, "aoanet": 1, "updown": 2})
    drawn = {plot.title: [mark.series.name for mark in plot.drawn] for plot in section.plots}
    assert sorted(drawn["Computation"]) == ["aoanet", "m2", "updown"]
    assert sorted(drawn["Training time"]) == ["aoanet", "m2"]
    assert "trained on EPYC" in section.tables[""].marks


def test_a_range_over_seeds_is_of_those_that_the_cost_is_of() -> None:
    seeds = {key: replace(run(), costs={"train_seconds": Quantity(value)}) for key, value in (("a", 4.0), ("b", 6.0))}
    seeds["c"] = replace(run(), costs={"train_seconds": Quantity(1.0)})
    spread = replace(row("m2"), seeds=(0, 1, 2), keys=tuple(seeds), costs={"train_seconds": Quantity(5.0)})
    assert bounded_cost(spread, "train_seconds", seeds).low == 1.0
    mostly = replace(spread, other_machines={"train_seconds": OtherMachine("of 2 of 3 seeds", (0, 1))})
    assert bounded_cost(mostly, "train_seconds", seeds).low == 4.0
