"""Columns of leaderboards and cost tables: what is shown, what is told in a sentence, what is marked, and ratios."""

from dataclasses import replace

import pytest

from reports.columns import NOISY_KEY, cost_list
from reports.html.sections import cost_tables, domain_sections
from reports.tables.leaderboards import leaderboards, people
from reports.tables.table import Table
from results.records import Quantity
from results.runs.leaderboard import Row
from results.runs.spreads import OtherMachine, Spread
from results.statistics.learning import Learning
from tests.reports.examples import contents, group, row


def keys(table: Table) -> list[str]:
    return [column.key for column in table.columns]


def costing(model: str, **costs: Quantity) -> Row:
    return replace(row(model), keys=(model,), costs=costs)


def seconds(value: float) -> Quantity:
    return Quantity(value, unit="s")


def costs_of(theme: str, *rows: Row) -> Table:
    return cost_tables(group(*rows), {})[theme]


def names(table: Table) -> list[str]:
    return [column.name for column in table.columns]


def scored(model: str, *, spice: float | None, latency: float | None = None) -> Row:
    missing = None if spice is not None else "needs its models"
    scores = row(model).scores | {"SPICE": Spread(spice, None, int(spice is not None), missing)}
    costs = {"parameters": Quantity(1e6), "latency_median": Quantity(latency, None if latency else "busy", "s")}
    return replace(row(model), scores=scores, costs=costs)


def test_what_no_row_has_is_left_out_with_the_reason_and_what_one_has_stays() -> None:
    [table], absent = leaderboards([group(scored("a", spice=None), scored("b", spice=None))], None, {})
    assert keys(table) == ["CIDEr-D", "interval", "parameters"]
    assert [part in absent for part in ("SPICE: needs its models", "Latency: busy")] == [True, True]
    two = group(scored("a", spice=None), scored("b", spice=0.2, latency=0.1))
    [table], absent = leaderboards([two], None, {})
    assert keys(table) == ["CIDEr-D", "interval", "SPICE", "parameters", "latency_median"]
    assert absent == ""
    [table], _ = leaderboards([replace(two, metric="SPICE")], None, {})
    assert keys(table)[:2] == ["SPICE", "CIDEr-D"], "the ranking metric is first; SPICE has no interval here"


@pytest.mark.parametrize(
    ("models", "column", "shown"),
    [
        ({"m2": 30.0, "blind": 20.0}, "× blind", ["1.50×", "1.00×"]),
        ({"m2": 42.0, "aoanet": 10.0}, "× least", ["4.20×", "1.00×"]),
    ],
)
def test_costs_are_told_as_times_the_blind_model_or_else_the_least(
    models: dict[str, float], column: str, shown: list[str]
) -> None:
    told = costs_of("Time", *(costing(name, train_seconds=seconds(value)) for name, value in models.items()))
    assert names(told) == ["Training time", column]
    assert [line.cells[1].text for line in told.lines] == shown


def test_what_another_machine_measured_is_marked_and_compared_with_nothing() -> None:
    elsewhere, mostly = (
        replace(costing(name, train_seconds=seconds(value)), other_machines={"train_seconds": OtherMachine(said, of)})
        for name, value, said, of in (("m2", 10, "trained on EPYC", ()), ("updown", 30, "of 2 of 3 seeds", (0, 1)))
    )
    table = costs_of("Time", elsewhere, mostly, costing("aoanet", train_seconds=seconds(60)))
    assert [line.cells[1].text for line in table.lines] == ["", "1.00×", "2.00×"]
    assert [line.cells[0].note for line in table.lines] == ["trained on EPYC", "of 2 of 3 seeds", ""]
    assert list(table.marks.values()) == ["a", "b"]


def test_of_two_counts_of_a_caption_one_is_compared() -> None:
    counts = {"gmac_beam": Quantity(2.0, unit="GMAC"), "gmac_beam_mean_length": Quantity(1.0, unit="GMAC")}
    told = costs_of("Size and computation", costing("m2", **counts), costing("blind", **counts))
    assert names(told) == ["Computation per caption", "× blind", "Longest caption, beam"]


def test_columns_that_are_empty_or_the_same_become_sentences() -> None:
    missing = Quantity(None, "seeds 0, 1: no CUDA device; seed 2: no driver", "J")
    costs = {"energy_per_image": missing, "idle_power": replace(missing, unit="W")}
    found = costs_of("Energy", costing("m2", **costs), costing("aoanet", **costs))
    assert (found.columns, len(found.sentences)) == ((), 1)
    assert found.sentences[0].endswith("(no CUDA device; no driver).")

    same = {"latency_threads": Quantity(1.0, unit="threads"), "latency_iqr": Quantity(None, "one image", "s")}
    found = costs_of(
        "Latency", *(costing(name, latency_median=seconds(of), **same) for name, of in (("m2", 1), ("blind", 2)))
    )
    assert names(found) == ["Latency", "× blind"]
    assert found.marks == {}, "no note of a column that is gone"
    assert ["one image" in found.sentences[0], "1\u202fthread" in found.sentences[1]] == [True, True]


def test_a_noisy_latency_is_marked_instead_of_a_column() -> None:
    timed = {"latency_median": Quantity(0.25, unit="s"), NOISY_KEY: Quantity(0.0)}
    table = costs_of("Latency", costing("m2", **timed), costing("aoanet", **timed | {NOISY_KEY: Quantity(0.5)}))
    assert names(table) == ["Latency", "× least"]
    assert [line.cells[0].text for line in table.lines] == ["250\u202fms", "~250\u202fms"]
    assert [bool(line.cells[0].note) for line in table.lines] == [False, True]
    assert [cell.text for _, _, cell in cost_list({NOISY_KEY: Quantity(0.5)})] == ["yes"]


def test_an_estimate_is_a_range_whose_assumption_is_a_note() -> None:
    name = "train_a100_hours_estimate"
    hours, old = ({name: Quantity(9.0, None, "h", low, high)} for low, high in ((3.0, 9.0), (None, None)))
    table = costs_of("Time", costing("m2", **hours), costing("aoanet", **old))
    assert [line.cells[0].text for line in table.lines] == ["3.00\u202fh–9.00\u202fh", "9.00\u202fh"]
    assert list(table.marks) == [table.columns[0].meaning]
    [(_, _, cell)] = cost_list(hours)
    assert (cell.text, cell.reason) == ("3.00\u202fh–9.00\u202fh", table.columns[0].meaning)


def test_people_are_compared_where_they_were_scored_alike() -> None:
    def held(model: str, cider: float) -> Row:
        return replace(row(model), held_out={"CIDEr-D": Spread(cider, None, 1)})

    differs = {"nrefs": "test=4,nocaps=9", "heldout": "each", "beam": "none"}
    human = replace(held("human", 2.0), role="reference", differs=differs)
    of = group(held("a", 0.4), held("b", 0.5), row("without"))
    for split, nrefs in (("test", "4"), ("nocaps", "9")):
        found = people(replace(of, split=split, references=(human,)), {})
        assert found is not None
        assert [(line.model, line.differs, line.cells[0].text) for line in found.table.lines] == [
            ("human", "", "200.0"), ("b", "", "50.0"), ("a", "", "40.0"),
        ]  # fmt: skip
        assert f"Against {nrefs} references per image" in found.note
    alone = people(replace(of, references=(replace(human, differs=differs | {"nrefs": "1"}),)), {})
    assert alone is not None
    assert "Against 1 reference per image" in alone.note
    part = people(replace(of, references=(replace(human, differs=differs | {"subset": None}),)), {})
    assert part is not None
    assert part.table.lines[0].differs == "of all images", "of which the other rows have a part"
    assert people(replace(group(row("without")), references=(human,)), {}) is None
    for other in (replace(human, held_out={}), *(replace(human, differs=differs | {k: "x"}) for k in ("tok", "rev"))):
        assert people(replace(of, references=(other,)), {}) is None


def test_a_metric_that_no_domain_has_is_left_out_for_its_own_reason() -> None:
    scores = {"CIDEr-D": Spread(0.4, None, 1), "SPICE": Spread(None, None, 0, "its models are not installed")}
    rising = Learning("still learning", 8, 0.1, 0.01, stage=1, epochs=6)
    rows = [replace(row(name), domains={"in-domain": scores}, learning={1: rising}) for name in "ab"]
    [section] = domain_sections(contents(group(*rows)), {})
    assert section.tables["CIDEr-D"].sentences == ()
    assert section.tables["SPICE"].sentences == ("No row has SPICE: its models are not installed.",)
