"""Ranking: only what was scored under the same conditions shares a group, and nothing is left out."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from results import Quantity, Results, SplitResult, Store
from results.comparison.comparison import compare_models
from results.metrics import base_name, depends_on, is_more, more_order
from results.runs.leaderboard import Row, leaderboard
from results.runs.reading import one_run, stored_runs
from results.runs.spreads import OtherMachine, Spread
from results.store.rescoring import add_scores
from tests.results.conftest import url
from tests.results.runs.test_standings import by_model

__all__ = ["url"]  # queries run on both databases
Add = Callable[..., str]


def models(rows: tuple[Row, ...]) -> list[str]:
    return [row.model for row in rows]


def test_rows_rank_by_mean_cider_and_spread_over_seeds(store: Store, add: Add) -> None:
    for seed, cider in ((3, 0.75), (1, 0.25), (2, 0.5)):
        add("low", seed, cider)
    add("high", 1, 1.25)
    (group,) = leaderboard(store)
    assert (group.dataset, group.fingerprint, group.split, group.track) == ("scenes", "f" * 16, "test", "controlled")
    assert list(group.signature) == ["nrefs", "split", "beam"]
    assert group.separating == ()
    assert models(group.rows) == ["high", "low"]
    high, low = group.rows
    assert high.scores["CIDEr-D"] == Spread(1.25, None, 1)
    assert (low.scores["CIDEr-D"].mean, low.scores["CIDEr-D"].sd, low.scores["CIDEr-D"].n) == (0.5, 0.25, 3)
    assert (low.seeds, low.keys) == ((1, 2, 3), ("low-1", "low-2", "low-3"))
    assert low.scores["BLEU-4"] == Spread(0.25, 0.0, 3)
    assert low.domains["in-domain"]["CIDEr-D"] == Spread(0.5, 0.25, 3)
    assert low.domains["out-domain"]["CIDEr-D"] == Spread(None, None, 0, "one image only")
    assert list(low.domains) == ["in-domain", "out-domain"]
    assert low.costs == {"parameters": Quantity(1000.0, unit="1"), "energy": Quantity(None, "no meter", "J")}
    assert low.code_version == "0.1.0"
    assert low.differs == {}


def test_seeds_without_a_score_are_counted_out_with_their_reason(store: Store, add: Add) -> None:
    add("some", 1, 0.5)
    add("some", 2, None)
    add("some", 3, None)
    add("none", 1, None)
    add("absent", 1, None)
    (group,) = leaderboard(store)
    assert models(group.rows) == ["some", "absent", "none"], "rows without a score come last, by name"
    assert group.rows[0].scores["CIDEr-D"] == Spread(0.5, None, 1, "seeds 2, 3: no Java found")
    assert group.rows[2].scores["CIDEr-D"] == Spread(None, None, 0, "no Java found")


def test_a_metric_that_one_seed_lacks_altogether(store: Store, add: Add, make: Any) -> None:
    add("blind", 1)
    add("blind", 2)
    lone = SplitResult("test", {1: "a"}, {"overall": {"SPICE": Quantity(0.125), "CIDEr-D": Quantity(0.5)}}, {})
    store.finish("blind-2", make.outcome(splits=(lone,), costs={"seconds": Quantity(4.0, unit="s")}))
    (row,) = leaderboard(store)[0].rows
    assert row.scores["SPICE"] == Spread(0.125, None, 1, "seed 1: not recorded")
    assert row.scores["BLEU-4"] == Spread(0.25, None, 1, "seed 2: not recorded")
    assert row.domains["in-domain"]["CIDEr-D"] == Spread(0.5, None, 1, "seed 2: not recorded")
    assert row.costs["seconds"] == Quantity(4.0, unit="s")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"signature": {"nrefs": "5", "split": "scenes-test", "beam": "5"}}, "beam"),
        ({"signature": {"nrefs": "5", "split": "scenes-test"}}, "beam"),
        ({"signature": {"nrefs": "5", "split": "scenes-test", "beam": "3", "feat": "x"}}, "feat"),
        ({"track": "paper"}, "track"),
        ({"dataset": "e" * 16}, "data"),
    ],
)
def test_different_conditions_are_different_groups(
    store: Store, add: Add, make: Any, changes: dict[str, Any], field: str
) -> None:
    store.record_dataset(make.dataset("e" * 16))
    add("blind", 1, 0.5)
    add("rival", 1, 0.6)
    add("blind", 1, 0.7, variant="-other", **changes)
    first, second = leaderboard(store)
    assert (models(first.rows), models(second.rows)) == (["rival", "blind"], ["blind"])
    assert first.separating == second.separating == (field,)
    assert all(row.seeds == (1,) for row in (*first.rows, *second.rows))


def test_the_order_of_a_signature_separates_nothing(store: Store, add: Add) -> None:
    add("blind")
    add("rival", signature={"beam": "3", "split": "scenes-test", "nrefs": "5"})
    assert len(leaderboard(store)) == 1


def test_each_split_is_its_own_group(store: Store, make: Any) -> None:
    test = make.outcome().splits[0]
    make.run(store, make.outcome(splits=(test, replace(test, split="nocaps"))))
    assert [(group.split, group.separating) for group in leaderboard(store)] == [("test", ()), ("nocaps", ())]


def test_variants_of_one_model_are_rows_of_their_own(store: Store, add: Add) -> None:
    config = {"seed": 1, "arguments": {"seed": 1, "epochs": 3, "d_model": 256}}
    add("blind", 1, 0.5)
    add("blind", 2, 0.5)
    add("blind", 1, 0.25, variant="-wide", record=config)
    add("blind", 1, 0.125, variant="-new", code_version="0.2.0")
    add("rival", 1, 0.1)
    (group,) = leaderboard(store)
    assert [(row.model, row.seeds) for row in group.rows] == [
        ("blind", (1, 2)),
        ("blind", (1,)),
        ("blind", (1,)),
        ("rival", (1,)),
    ]
    assert [row.differs for row in group.rows] == [
        {"code_version": "0.1.0", "arguments.d_model": None},
        {"code_version": "0.1.0", "arguments.d_model": "256"},
        {"code_version": "0.2.0", "arguments.d_model": None},
        {},
    ]


def test_references_are_beside_every_group_of_data_and_split(store: Store, add: Add, make: Any) -> None:
    store.record_dataset(make.dataset("e" * 16, name="elsewhere"))
    add("blind")
    add("blind", variant="-wide", signature={"nrefs": "5", "split": "scenes-test", "beam": "5"})
    add("far", dataset="e" * 16)
    add("human", 0, 2.0, role="reference", signature={"nrefs": "4", "split": "scenes-test"})
    add("retrieval", 0, 0.1, role="reference", signature={"nrefs": "5", "split": "scenes-test", "feat": "x"})
    narrow, wide, elsewhere = leaderboard(store)
    assert models(narrow.references) == models(wide.references) == ["human", "retrieval"]
    assert [row.role for row in narrow.references] == ["reference", "reference"]
    assert [row.differs for row in narrow.references] == [{"nrefs": "4", "beam": None}, {"feat": "x", "beam": None}]
    assert models(narrow.rows) == ["blind"], "references are never ranked"
    assert elsewhere.references == ()
    assert narrow.separating == ("beam",), "references separate nothing"


@pytest.mark.parametrize(("revision", "differs"), [("2", {}), ("1", {"rev": "1"})])
def test_a_reference_by_another_release_of_the_results_revision_is_alike(
    store: Store, add: Add, revision: str, differs: dict[str, str]
) -> None:
    add("blind", signature={"nrefs": "5", "v": "1.0.0", "rev": "2"})
    add("human", 0, 2.0, role="reference", signature={"nrefs": "5", "v": "0.4.0", "rev": revision})
    (group,) = leaderboard(store)
    assert [row.differs for row in group.references] == [differs]


def test_references_alone_are_shown_too(store: Store, add: Add) -> None:
    add("human", 0, 2.0, role="reference")
    (group,) = leaderboard(store)
    assert (group.rows, group.signature, group.split) == ((), {}, "test")
    assert models(group.references) == ["human"]
    assert group.references[0].differs == {}


CHAIR = "CHAIR-s (objects:scenes)"


def test_they_are_read_apart_from_the_scores(store: Store, add: Callable[..., str]) -> None:
    keys = [add("blind", seed, cider) for seed, cider in ((1, 0.25), (2, 0.75))]
    before, detail = leaderboard(store), one_run(store, keys[0])
    for key, share in zip(keys, (0.0, 0.5), strict=True):
        values = {CHAIR: Quantity(share, low=0.0, high=1.0), "CLIPScore": Quantity(None, "no CLIP model is named")}
        by_image = {CHAIR: {1: share, 2: share, 30: share}}
        add_scores(store, key, [SplitResult("test", {1: "", 2: "", 30: ""}, {"overall": values}, by_image)])
    [group] = leaderboard(store)
    [row] = group.rows
    assert (row.more[CHAIR].mean, row.more[CHAIR].sd) == (0.25, pytest.approx(0.5**1.5))
    assert row.more["CLIPScore"].reason == "no CLIP model is named"
    assert row.scores == before[0].rows[0].scores
    assert row.ranks == before[0].rows[0].ranks
    assert one_run(store, keys[0]).scores.by_domain("test") == detail.scores.by_domain("test")
    runs = stored_runs(store)
    [pair] = compare_models(runs, runs, {}, 0).pairs
    assert {score.metric for score in pair.scores if score.test} == {"CIDEr-D"}
    assert not {CHAIR, "CLIPScore"} & {score.metric for score in pair.scores}
    with Results(store) as results:
        assert not results.scores()["metric"].isin([CHAIR, "CLIPScore"]).any()
        assert set(results.image_scores()["metric"]) == {"CIDEr-D"}
        more = results.more_metrics()
        assert list(more["value"].dropna()) == [0.0, 0.5]
        assert list(more["better"]) == ["lower", "higher"] * 2


def test_names_say_what_a_metric_depends_on() -> None:
    assert (base_name(CHAIR), depends_on(CHAIR)) == ("CHAIR-s", "objects:scenes")
    assert is_more(CHAIR)
    assert not any(map(is_more, ("CIDEr-D", "CIDEr-D (df:domain)", "SPICE")))
    assert more_order([CHAIR, "caption_words", "CLIPScore (clip:b)", "CLIPScore (clip:a)"]) == [
        "caption_words", CHAIR, "CLIPScore (clip:a)", "CLIPScore (clip:b)",
    ]  # fmt: skip


XEON, EPYC = {"cpu": "Xeon"}, {"cpu": "EPYC"}
A100 = {"cpu": "EPYC", "device": {"type": "cuda", "name": "A100"}}
Finish = Callable[..., None]


@pytest.fixture
def finish(store: Store, make: Any) -> Finish:
    """`finish(model, seed, seconds, environment)`: latency and training take the same, parameters are as many."""

    def finishing(model: str, seed: int, seconds: float | None, environment: dict[str, Any]) -> None:
        time = Quantity(seconds, None if seconds else "no clock", "s")
        costs = {"train_seconds": time, "latency_median": time, "parameters": Quantity(seconds or 1.0)}
        make.run(store, make.outcome(costs=costs, environment=environment), model, seed)

    return finishing


def test_times_are_of_the_seeds_on_the_machine_of_most(store: Store, finish: Finish) -> None:
    for model, seed, seconds, environment in (
        ("m2", 0, 4.0, XEON),
        ("m2", 1, 6.0, XEON),
        ("m2", 2, 1.0, EPYC),
        ("aoanet", 0, 2.0, EPYC),
        ("updown", 0, 8.0, XEON),
    ):
        finish(model, seed, seconds, environment)
    found = by_model(store)
    assert found["m2"].costs["train_seconds"].value == 5.0
    assert found["m2"].costs["parameters"].value == pytest.approx(11 / 3), "the same on every machine"
    said = "of 2 of 3 seeds, trained on Xeon as most others; the rest was on EPYC"
    assert found["m2"].other_machines["train_seconds"] == OtherMachine(said, (0, 1))
    assert found["aoanet"].costs["train_seconds"].value == 2.0, "measured, but nowhere to be compared"
    assert found["aoanet"].other_machines["train_seconds"] == OtherMachine("trained on EPYC, most others on Xeon", ())
    assert found["aoanet"].other_machines.keys() == {"train_seconds", "latency_median"}
    assert not found["updown"].other_machines


def test_what_was_measured_apart_is_of_that_machine(store: Store, finish: Finish) -> None:
    finish("m2", 0, 4.0, A100 | {"measurement": XEON})
    finish("aoanet", 0, 4.0, A100 | {"measurement": {"load_average": 0.5}})
    finish("updown", 0, 4.0, A100)
    (said,) = by_model(store)["m2"].other_machines.items()
    assert said == ("latency_median", OtherMachine("measured on Xeon, most others on A100", ()))


def test_seeds_without_the_cost_or_a_known_machine_are_as_ever(store: Store, finish: Finish) -> None:
    finish("m2", 0, None, EPYC)
    finish("m2", 1, 3.0, {})
    finish("aoanet", 0, 5.0, XEON)
    finish("updown", 0, 5.0, XEON)
    found = by_model(store)
    assert found["m2"].costs["train_seconds"].value == 3.0
    assert not any(row.other_machines for row in found.values())
