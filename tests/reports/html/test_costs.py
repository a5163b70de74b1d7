"""Costs on the pages: bounds, noise, estimates and what a caption takes."""

from __future__ import annotations

from dataclasses import replace

from reports.html.costs import cost_list, cost_sections
from reports.html.trade_offs import bounded_cost, trade_off_sections
from reports.tables.table_values import NOISY
from reports.tables.tables import cost_tables, leaderboard
from results.records import Quantity
from results.runs.spreads import OtherMachine
from tests.reports.examples import group, row, run


def test_splits_of_the_same_runs_share_their_costs() -> None:
    one, other = (
        replace(row(name), keys=(name,), costs={"parameters": Quantity(amount)})
        for name, amount in (("a", 1.0), ("b", 2.0))
    )
    runs = {"a": run(), "b": run()}
    test, nocaps = group(one, other), replace(group(other, one), split="nocaps")
    assert len(cost_sections([test, nocaps], runs)) == 1
    assert len(cost_sections([test, group(one)], runs)) == 2


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


def test_a_noisy_latency_is_marked_instead_of_a_column() -> None:
    timed = {"latency_median": Quantity(0.25, unit="s"), "latency_noisy": Quantity(0.0)}
    steady, noisy = replace(row("m2"), costs=timed), replace(row("aoanet"), costs=timed | {NOISY: Quantity(0.5)})
    table = cost_tables(group(steady, noisy))["Latency"]
    assert [heading.name for heading in table.headings] == ["Latency"]
    assert [(line.cells[0].text, line.cells[0].mark) for line in table.lines] == [
        ("250\u202fms", ""),
        ("~250\u202fms", "a"),
    ]
    assert [cell.text for label, _, cell in cost_list(noisy.costs) if label == "Noisy latency"] == ["yes"]


ESTIMATE = "train_a100_hours_estimate"


def test_an_estimate_is_a_range_whose_assumption_is_a_note() -> None:
    hours = {ESTIMATE: Quantity(9.0, None, "h", 3.0, 9.0), "train_seconds": Quantity(60.0, unit="s")}
    old = {ESTIMATE: Quantity(4.0, None, "h"), "train_seconds": Quantity(60.0, unit="s")}
    table = cost_tables(group(replace(row("m2"), costs=hours), replace(row("aoanet"), costs=old)))["Time"]
    place = next(number for number, heading in enumerate(table.headings) if "A100" in heading.name)
    assert table.headings[place].name == "A100 hours, estimate"
    first, second = (line.cells[place] for line in table.lines)
    assert (first.text, first.value, first.interval) == ("3.00\u202fh–9.00\u202fh", 9.0, "")
    assert second.text == "4.00\u202fh", "a run that is older than the bounds"
    [note] = table.notes.marks
    assert note.startswith("an estimate, not a measurement")
    assert first.mark == second.mark == table.notes.marks[note]
    [(label, _, cell)] = [listed for listed in cost_list(hours) if "A100" in listed[0]]
    assert ("estimate" in label, cell.text, cell.mark) == (True, first.text, "")
    assert (cell.reason or "").startswith("an estimate")


def test_the_generated_length_counts_in_leaderboard_and_plots() -> None:
    full = {"gmac_beam": Quantity(0.08, unit="GMAC")}
    said = full | {"gmac_beam_mean_length": Quantity(0.05, unit="GMAC")}
    for costs, name, text in (
        (said, "Computation per caption", "50.0\u202fMMAC"),
        (full, "Longest caption, beam", "80.0\u202fMMAC"),
    ):
        rows = [
            replace(row(model, cider=cider), keys=(model,), costs=costs) for model, cider in (("a", 1.0), ("b", 2.0))
        ]
        table = leaderboard(group(*rows))
        assert [heading.name for heading in table.headings] == ["CIDEr-D", name]
        assert [line.cells[1].text for line in table.lines] == [text] * 2
        runs = {model: replace(run(), costs=costs) for model in ("a", "b")}
        (section,) = trade_off_sections([group(*rows)], [], runs, {"a": 0, "b": 1})
        assert [plot.title for plot in section.plots] == ["Computation"]
        assert [line.cells[2].text for line in section.table.lines] == [text] * 2
        length = "mean" if costs is said else "full"
        assert f"MAC per caption of {length} length" in section.plots[0].drawn[0].series.title


def test_trade_offs_name_units_and_mark_latencies_that_are_noise() -> None:
    timed = {"latency_median": Quantity(0.25, unit="s"), "gmac_beam": Quantity(0.05, unit="GMAC")}
    steady, noisy = (
        replace(row(name, cider=cider), keys=(name,), costs=timed | {NOISY: Quantity(value)})
        for name, cider, value in (("m2", 1.0, 0.0), ("aoanet", 0.9, 1.0))
    )
    runs = {"m2": replace(run(), costs=steady.costs), "aoanet": replace(run(), costs=noisy.costs)}
    (section,) = trade_off_sections([group(steady, noisy)], [], runs, {"m2": 0, "aoanet": 1})
    assert [heading.name for heading in section.table.headings][1:4] == [
        "Best trade-off in", "Computation", "Latency",
    ]  # fmt: skip
    assert [line.cells[3].text for line in section.table.lines] == ["250\u202fms", "~250\u202fms"]
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
    (section,) = trade_off_sections([group(*rows)], [], runs, {"m2": 0, "aoanet": 1, "updown": 2})
    drawn = {plot.title: [mark.series.name for mark in plot.drawn] for plot in section.plots}
    assert sorted(drawn["Computation"]) == ["aoanet", "m2", "updown"]
    assert sorted(drawn["Training time"]) == ["aoanet", "m2"]
    assert "trained on EPYC" in section.table.notes.marks


def test_a_range_over_seeds_is_of_those_that_the_cost_is_of() -> None:
    seeds = {key: replace(run(), costs={"train_seconds": Quantity(value)}) for key, value in (("a", 4.0), ("b", 6.0))}
    seeds["c"] = replace(run(), costs={"train_seconds": Quantity(1.0)})
    spread = replace(row("m2"), seeds=(0, 1, 2), keys=tuple(seeds), costs={"train_seconds": Quantity(5.0)})
    assert bounded_cost(spread, "train_seconds", seeds).low == 1.0
    mostly = replace(spread, other_machines={"train_seconds": OtherMachine("of 2 of 3 seeds", (0, 1))})
    assert bounded_cost(mostly, "train_seconds", seeds).low == 4.0
