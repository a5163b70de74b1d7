"""The verdict in words: from places, seeds and how trainings ended."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reports.tables.verdict import needs_longer_training, verdict
from results.records import Quantity
from results.runs.leaderboard import Row
from results.runs.spreads import OtherMachine
from results.runs.standings import ALONE, NO_SCORES, FloorTest, Reseeding, Standing
from results.statistics.architecture import NEEDS_SEEDS
from results.statistics.learning import Learning
from tests.reports.examples import group, row

RISING = Learning("still learning", 8, 0.123, 0.01, stage=1, epochs=6)


def placed(model: str, best: int, worst: int, seconds: float | None = None) -> Row:
    costs = {} if seconds is None else {"train_seconds": Quantity(seconds, unit="s")}
    return replace(
        row(model), seeds=(1, 2, 3), keys=(f"{model}1",), costs=costs, standings={"CIDEr-D": Standing(best, worst)}
    )


def single(model: str, **changes: object) -> Row:
    return replace(row(model), keys=(model,), standings={"CIDEr-D": Standing(reason=NEEDS_SEEDS)}, **changes)  # type: ignore[arg-type]


def test_one_best_model_is_named_with_its_place_and_seeds() -> None:
    assert verdict(group(placed("a", 1, 1), placed("b", 2, 3), placed("c", 2, 3))) == (
        "Best on coco test: a (place 1, 3 seeds).",
    )


def test_of_several_best_models_the_cheapest_is_named() -> None:
    assert verdict(group(placed("a", 1, 2, 76), placed("b", 1, 2, 56), placed("c", 3, 3, 1))) == (
        "Best on coco test: a or b (places 1–2, 3 seeds).",
        "b trains in 56.0\u202fs, a in 1\u202fmin 16\u202fs.",
    )


def test_of_many_best_models_the_others_are_named() -> None:
    many = [placed(name, 1, 6) for name in "abcde"]
    assert verdict(group(*many, placed("f", 2, 6))) == ("Best on coco test: any but f (places 1–6, 3 seeds).",)


def test_times_of_two_machines_are_not_compared() -> None:
    other = {"train_seconds": OtherMachine("trained on EPYC, most others on Xeon", ())}
    assert verdict(group(placed("a", 1, 2, 76), replace(placed("b", 1, 2, 56), other_machines=other))) == (
        "No difference on coco test is significant: a and b share places 1–2 (3 seeds).",
    )


def test_models_that_share_all_places_are_not_called_best() -> None:
    assert verdict(group(placed("a", 1, 2), placed("b", 1, 2))) == (
        "No difference on coco test is significant: a and b share places 1–2 (3 seeds).",
    )


def test_one_seed_says_nothing_yet_and_what_to_type() -> None:
    models = [single(name, learning={1: RISING}) for name in "ab"] + [single("c")]
    assert verdict(group(*models)) == (
        "No model has a place yet on coco test: one seed, 2 of 3 still learning.",
        "Places need several seeds: bench run --seeds 3.",
    )


def test_how_far_other_seeds_moved_rows_is_said_of_one_seed() -> None:
    moved = Reseeding(4, 3, 0.0612, 0.356, 2)
    found = verdict(replace(group(single("a"), single("b")), reseeding=moved))
    assert found[1] == (
        "Other seeds moved CIDEr-D of the last 4 models with several seeds here by up to 35.6 points "
        "(standard deviation 6.1), and a model by up to 2 ranks."
    )
    assert "Other seeds" not in " ".join(verdict(replace(group(placed("a", 1, 2), placed("b", 1, 2)), reseeding=moved)))


def test_models_without_a_place_are_counted_with_reasons() -> None:
    below = Standing(reason="not above the floor", floors=(FloorTest("blind", 0.0, 1.0, False),))
    low = replace(placed("low", 1, 1), standings={"CIDEr-D": below})
    floor = replace(row("blind"), standings={"CIDEr-D": Standing(is_floor=True)})
    found = verdict(group(placed("a", 1, 1), placed("b", 2, 2), single("c"), low, floor))
    assert found[1] == "2 of 4 models besides blind have no place: 1 with one seed, 1 not above the floor."


def test_places_of_models_that_were_still_learning_are_qualified() -> None:
    rising = replace(placed("a", 1, 1), learning={1: RISING})
    assert verdict(group(rising, placed("b", 2, 2)))[1:] == (
        "1 of 2 placed models were still learning: longer training may order them otherwise.",
    )


def test_a_model_alone_and_one_without_numbers_of_images_are_told_apart() -> None:
    alone = replace(placed("a", 1, 1), standings={"CIDEr-D": Standing(reason=ALONE)})
    assert verdict(group(alone)) == ("No model has a place yet on coco test: no two models can be compared.",)
    bare = replace(placed("b", 1, 1), standings={"CIDEr-D": Standing(reason=NO_SCORES)})
    assert verdict(group(bare)) == (
        "No model has a place yet on coco test: 1 without numbers of single images on CIDEr-D.",
    )


def test_floors_alone_have_no_verdict() -> None:
    assert verdict(group()) == ()
    assert verdict(group(replace(row("blind"), standings={"CIDEr-D": Standing(is_floor=True)}))) == ()


@pytest.mark.parametrize(
    ("ended", "said"),
    [
        (
            RISING,
            "Still learning when the training ended: a. "
            "To train twice as long: bench run ... --set schedule.stages.1.epochs=12",
        ),
        (
            replace(RISING, state="at chance"),
            "At the level of chance when the training ended: a. "
            "To train twice as long: bench run ... --set schedule.stages.1.epochs=12",
        ),
        (
            replace(RISING, state="rate near zero", rise=0.0),
            "With a learning rate that had long been near zero when the training ended: a.",
        ),
        (replace(RISING, epochs=None), "Still learning when the training ended: a."),
        (replace(RISING, state="finished learning", rise=0.0), ""),
    ],
)
def test_longer_training_comes_with_its_option(ended: Learning, said: str) -> None:
    assert needs_longer_training([group(single("a", learning={1: ended}))]).strip() == said
