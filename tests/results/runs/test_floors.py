"""What a row has to be above: tests against the floors, and no place without them."""

import pytest

from results import Store
from results.runs.leaderboard import Group, Row, leaderboard
from results.runs.spreads import Spread
from results.store.schema import HeldOutScore
from tests.results.runs.finishing import finish, level


def rows(store: Store) -> dict[str, Row]:
    group: Group
    (group,) = leaderboard(store)
    return {row.model: row for row in (*group.rows, *group.references)}


def test_only_rows_above_every_floor_have_a_place(store: Store) -> None:
    finish(store, "majority", 1, level(0.5), role="reference")
    finish(store, "retrieval", 1, level(0.6), role="reference")
    for seed in (1, 2, 3):
        finish(store, "blind", seed, level(0.4, wobble=0.03))
        finish(store, "best", seed, level(1.0 + 0.01 * seed, wobble=0.05))
        finish(store, "second", seed, level(0.8 + 0.01 * seed, wobble=-0.05))
        finish(store, "between", seed, level(0.55, wobble=0.01))
        finish(store, "as-majority", seed, level(0.501, wobble=-0.05))
    found = rows(store)
    standings = {name: row.standings["CIDEr-D"] for name, row in found.items() if row.role == "model"}
    assert {name: standing.best for name, standing in standings.items()} == {
        "best": 1,
        "second": 2,
        "between": None,
        "as-majority": None,
        "blind": None,
    }
    assert standings["blind"].is_floor
    assert standings["blind"].floors == (), "a floor is not tested against others"
    assert not standings["best"].is_floor
    between, low = standings["between"], standings["as-majority"]
    assert between.reason == "not above the floor"
    assert [(test.floor, test.above, test.significant) for test in between.floors] == [
        ("blind", True, True),
        ("majority", True, True),
        ("retrieval", False, True),
    ]
    assert [test.floor for test in low.not_above] == ["majority", "retrieval"]
    assert low.not_above[0].p > 0.5
    (group,) = leaderboard(store)
    found = group.comparisons
    assert found is not None
    assert (len(found.rows), len(found.pairs), found.floor_tests, found.images) == (2, 1, 12, 40)
    assert all(row.standings == {} for row in group.references)


def test_a_group_of_rows_below_the_floor_says_what_was_tested(store: Store) -> None:
    finish(store, "majority", 1, level(0.5), role="reference")
    finish(store, "low", 1, level(0.4))
    (group,) = leaderboard(store)
    assert group.rows[0].standings["CIDEr-D"].reason == "not above the floor"
    assert group.comparisons is not None
    assert (group.comparisons.rows, group.comparisons.pairs, group.comparisons.floor_tests) == ((), (), 1)


def test_without_a_floor_no_row_is_left_out(store: Store) -> None:
    finish(store, "human", 1, level(2.0), role="reference")
    for seed in (1, 2):
        finish(store, "low", seed, level(0.1 + 0.01 * seed))
        finish(store, "lower", seed, level(0.0))
    standing = rows(store)["low"].standings["CIDEr-D"]
    assert (standing.best, standing.floors) == (1, ())


@pytest.mark.parametrize(
    ("changes", "applies"),
    [
        ({}, True),
        ({"beam": "none"}, True),
        ({"nrefs": "4"}, False),
        ({"tok": "ptb-java"}, False),
        ({"rev": "2"}, False),
        ({"v": "0.3.1"}, True),
    ],
)
def test_a_floor_counts_only_where_it_was_scored_alike(store: Store, changes: dict[str, str], applies: bool) -> None:
    signature = {"nrefs": "5", "tok": "ptb-python", "beam": "3", "v": "0.3.0", "rev": "1"}
    finish(store, "low", 1, level(0.1), signature=signature)
    finish(store, "majority", 1, level(0.5), role="reference", track="paper", signature=signature | changes)
    assert bool(rows(store)["low"].standings["CIDEr-D"].not_above) == applies


def test_floors_see_what_the_models_of_their_table_see(store: Store) -> None:
    """Retrieval by the table's features, or else by others, but never for models that learn from pixels alone."""
    for feat in ("weak", "other", "pixels[96x96]"):
        finish(store, "model", 1, level(0.5), variant=feat, signature={"feat": feat})
    finish(store, "blind", 1, level(0.3), variant="weak", signature={"feat": "weak"})
    finish(store, "retrieval", 1, level(0.4), role="reference", variant="weak", signature={"feat": "weak"})
    finish(store, "retrieval", 1, level(0.6), role="reference", variant="strong", signature={"feat": "strong"})
    found = {group.signature["feat"]: group.rows[0].standings["CIDEr-D"].floors for group in leaderboard(store)}
    above = {feat: [(test.floor, test.above) for test in tests] for feat, tests in found.items()}
    assert above["weak"] == [("blind", True), ("retrieval", True)]
    assert above["other"] == [("blind", True), ("retrieval", True), ("retrieval", False)]
    assert above["pixels[96x96]"] == [("blind", True)]


def test_a_floor_whose_seeds_vary_widely_is_no_proof(store: Store) -> None:
    """Over images alone the model is surely above; over seeds it is not."""
    for seed, mean in enumerate((0.1, 0.9, 0.2), start=1):
        finish(store, "blind", seed, level(mean))
        finish(store, "model", seed, level(0.7 + 0.01 * seed))
    (test,) = rows(store)["model"].standings["CIDEr-D"].floors
    assert test.difference == pytest.approx(0.32)
    assert test.p > 0.1


def test_scores_against_one_reference_less_come_with_their_row(store: Store) -> None:
    finish(store, "model", 1, level(0.5), held_out=0.25)
    finish(store, "model", 2, level(0.5), held_out=0.75)
    finish(store, "old", 1, level(0.4))
    found = rows(store)
    assert found["model"].held_out["CIDEr-D"] == Spread(0.5, pytest.approx(0.3535, abs=1e-4), 2)
    assert found["model"].held_out["METEOR"] == Spread(None, None, 0, "no Java")
    assert found["old"].held_out == {}
    with store.reading() as connection:
        assert len(connection.execute(HeldOutScore.__table__.select()).all()) == 4
