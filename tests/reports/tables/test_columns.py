"""Columns of the leaderboard: those that are empty in every row are left out, with the reason."""

from __future__ import annotations

from dataclasses import replace

from reports.tables.columns import absent_columns, every_column, filled_columns
from reports.tables.leaderboard_page import ONE_MODEL, shown_families
from results.records import Quantity
from results.runs.leaderboard import Row
from results.runs.spreads import Spread
from tests.reports.examples import row, run


def scored(model: str, *, spice: float | None, latency: float | None = None) -> Row:
    missing = None if spice is not None else "needs its models"
    scores = row(model).scores | {"SPICE": Spread(spice, None, int(spice is not None), missing)}
    costs = {"parameters": Quantity(1e6), "latency_median": Quantity(latency, None if latency else "busy", "s")}
    return replace(row(model), scores=scores, costs=costs)


def test_what_no_row_has_is_left_out_with_the_reason() -> None:
    columns = filled_columns([scored("a", spice=None), scored("b", spice=None)], "CIDEr-D")
    assert columns.metrics == ("CIDEr-D",)
    assert columns.costs == ("parameters",)
    assert absent_columns(columns) == ("No row has SPICE: needs its models. No row has Latency: busy.")


def test_what_one_row_has_stays() -> None:
    rows = [scored("a", spice=None), scored("b", spice=0.2, latency=0.1)]
    columns = filled_columns(rows, "CIDEr-D")
    assert (columns.metrics, columns.costs) == (("CIDEr-D", "SPICE"), ("parameters", "latency_median"))
    assert absent_columns(columns) == ""
    assert every_column(rows, "SPICE").metrics == ("SPICE", "CIDEr-D"), "the ranking metric is first"


def test_families_of_one_model_are_one_to_choose_by() -> None:
    runs = {
        name: replace(run(card={"family": family}), key=name, model=name)
        for name, family in (("a/x", "a"), ("a/y", "a"), ("b", "b"), ("c", "c"))
    }
    runs["human"] = replace(run(), model="human", role="reference")
    assert shown_families(runs) == {"a/x": "a", "a/y": "a", "b": ONE_MODEL, "c": ONE_MODEL}
