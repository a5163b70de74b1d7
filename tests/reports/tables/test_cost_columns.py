"""What cost tables say in columns, and what in sentences."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reports.tables.cost_columns import prediction_note, told
from reports.tables.tables import cost_tables
from results.records import Quantity
from results.runs.leaderboard import Row
from results.runs.spreads import OtherMachine
from tests.reports.examples import group, row


def costing(model: str, **costs: Quantity) -> Row:
    return replace(row(model), keys=(model,), costs=costs)


def seconds(value: float) -> Quantity:
    return Quantity(value, unit="s")


def test_costs_are_told_as_times_the_blind_model() -> None:
    rows = [costing("m2", train_seconds=seconds(30)), costing("blind", train_seconds=seconds(20))]
    table = told(cost_tables(group(*rows))["Time"]).table
    assert table is not None
    assert [heading.name for heading in table.headings] == ["Training time", "× blind"]
    assert [line.cells[1].text for line in table.lines] == ["1.50×", "1.00×"]


def test_without_a_blind_model_the_least_is_one() -> None:
    rows = [costing(name, parameters=Quantity(value)) for name, value in (("m2", 4200.0), ("aoanet", 1000.0))]
    table = told(cost_tables(group(*rows))["Size and computation"]).table
    assert table is not None
    assert [heading.name for heading in table.headings] == ["Parameters", "× least"]
    assert [line.cells[1].text for line in table.lines] == ["4.20×", "1.00×"]


def test_what_another_machine_measured_is_marked_and_compared_with_nothing() -> None:
    elsewhere = replace(
        costing("m2", train_seconds=seconds(10)),
        other_machines={"train_seconds": OtherMachine("trained on EPYC, most others on Xeon", ())},
    )
    mostly = replace(
        costing("updown", train_seconds=seconds(30)),
        other_machines={"train_seconds": OtherMachine("of 2 of 3 seeds, trained on Xeon", (0, 1))},
    )
    table = told(cost_tables(group(elsewhere, mostly, costing("aoanet", train_seconds=seconds(60))))["Time"]).table
    assert table is not None
    assert [line.cells[1].text for line in table.lines] == ["", "1.00×", "2.00×"]
    assert [line.cells[0].mark for line in table.lines] == ["a", "b", ""]
    assert list(table.notes.marks) == ["trained on EPYC, most others on Xeon", "of 2 of 3 seeds, trained on Xeon"]


def test_of_two_counts_of_a_caption_one_is_compared() -> None:
    counts = {"gmac_beam": Quantity(2.0, unit="GMAC"), "gmac_beam_mean_length": Quantity(1.0, unit="GMAC")}
    rows = [costing("m2", **counts), costing("blind", **counts)]
    table = told(cost_tables(group(*rows))["Size and computation"]).table
    assert table is not None
    names = [heading.name for heading in table.headings]
    assert names == ["Computation per caption", "× blind", "Longest caption, beam"]


def test_an_empty_table_is_one_sentence() -> None:
    missing = Quantity(None, "seed 0: no CUDA device; seed 1: no CUDA device", "J")
    costs = {"energy_per_image": missing, "idle_power": replace(missing, unit="W")}
    found = told(cost_tables(group(costing("m2", **costs), costing("aoanet", **costs)))["Energy"])
    assert found.table is None
    assert found.sentences == ("Not measured here: Energy per image; Idle power (no CUDA device).",)


def test_what_is_the_same_in_every_row_is_said_once_and_takes_no_note_along() -> None:
    def timed(model: str, value: float) -> Row:
        return costing(
            model,
            latency_median=seconds(value),
            latency_threads=Quantity(1.0, unit="threads"),
            latency_batch=Quantity(1.0, unit="images"),
            latency_iqr=Quantity(None, "one image", "s"),
        )

    found = told(cost_tables(group(timed("m2", 1.0), timed("blind", 2.0)))["Latency"])
    assert found.table is not None
    assert [heading.name for heading in found.table.headings] == ["Latency", "× blind"]
    assert found.table.notes.marks == {}
    assert found.sentences == (
        "Not measured here: Quartile range (one image).",
        "The same in every row: Batch: 1\u202fimage; Processor threads: 1\u202fthread.",
    )


def test_a_prediction_that_was_far_off_is_explained() -> None:
    far, near = (
        costing(name, train_seconds=seconds(80), predicted_train_seconds=seconds(predicted))
        for name, predicted in (("aoanet", 438), ("m2", 100))
    )
    table = told(cost_tables(group(far, near))["Time"]).table
    assert table is not None
    place = [heading.name for heading in table.headings].index("Predicted training time")
    assert [line.cells[place].mark for line in table.lines] == ["a", ""]
    [note] = table.notes.marks
    assert note.startswith("5.5 times what training took: ")


@pytest.mark.parametrize(("predicted", "taken"), [(None, 1.0), (1.0, None), (2.0, 1.0), (1.0, 2.0)])
def test_a_prediction_that_is_near_or_missing_is_not(predicted: float | None, taken: float | None) -> None:
    assert prediction_note(predicted, taken) == ""
