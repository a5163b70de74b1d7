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
ELSEWHERE = {"train_seconds": OtherMachine("trained on EPYC, most others on Xeon", ())}
MOVED = Reseeding(4, 3, 0.0612, 0.356, 2)


def placed(model: str, best: int, worst: int, seconds: float | None = None, **changes: object) -> Row:
    costs = {} if seconds is None else {"train_seconds": Quantity(seconds, unit="s")}
    place = {"CIDEr-D": Standing(best, worst)}
    return replace(row(model), seeds=(1, 2, 3), keys=(f"{model}1",), costs=costs, **{"standings": place} | changes)  # type: ignore[arg-type]


def single(model: str, **changes: object) -> Row:
    return replace(row(model), keys=(model,), standings={"CIDEr-D": Standing(reason=NEEDS_SEEDS)}, **changes)  # type: ignore[arg-type]


def standing(model: str, of: Standing) -> Row:
    return placed(model, 1, 1, standings={"CIDEr-D": of})


LOW = standing("low", Standing(reason="not above the floor", floors=(FloorTest("blind", 0.0, 1.0, False),)))
FLOOR = standing("blind", Standing(is_floor=True))
ALL = [placed("a", 1, 2), placed("b", 1, 2)]


@pytest.mark.parametrize(
    ("rows", "parts"),
    [
        ([placed("a", 1, 1), placed("b", 2, 3), placed("c", 2, 3)], ["Best", "a (place 1, 3 seeds)"]),
        (
            [placed("a", 1, 2, 76), placed("b", 1, 2, 56), placed("c", 3, 3, 1)],
            ["a or b (places 1–2, 3 seeds)", "b trains in 56.0\u202fs, a in 1\u202fmin 16\u202fs"],
        ),
        ([*(placed(name, 1, 6) for name in "abcde"), placed("f", 2, 6)], ["any but f (places 1–6, 3 seeds)"]),
        ([placed("a", 1, 2, 76), placed("b", 1, 2, 56, other_machines=ELSEWHERE)], ["No difference", "a and b"]),
        (ALL, ["No difference", "a and b share places 1–2 (3 seeds)"]),
        ([*(single(name, learning={1: RISING}) for name in "ab"), single("c")], ["one seed, 2 of 3", "--seeds 3"]),
        (
            [placed("a", 1, 1), placed("b", 2, 2), single("c"), LOW, FLOOR],
            ["2 of 4 models besides blind", "1 with one seed, 1 not above the floor"],
        ),
        ([placed("a", 1, 1, learning={1: RISING}), placed("b", 2, 2)], ["1 of 2", "still learning"]),
        ([standing("a", Standing(reason=ALONE))], ["No model has a place", "no two models"]),
        ([standing("b", Standing(reason=NO_SCORES))], ["1 without numbers of single images on CIDEr-D"]),
    ],
)
def test_it_names_the_best_or_says_why_not(rows: list[Row], parts: list[str]) -> None:
    said = " ".join(verdict(group(*rows)))
    assert [part for part in parts if part not in said] == []
    assert ("trains in" in said) == any("trains in" in part for part in parts), "times of two machines are not compared"


def test_floors_alone_have_no_verdict() -> None:
    assert verdict(group()) == verdict(group(FLOOR)) == ()


def test_how_far_other_seeds_moved_rows_is_said_of_one_seed() -> None:
    said = " ".join(verdict(replace(group(single("a"), single("b")), reseeding=MOVED)))
    assert all(part in said for part in ("last 4 models", "35.6 points", "deviation 6.1", "2 ranks"))
    assert "35.6" not in " ".join(verdict(replace(group(*ALL), reseeding=MOVED)))


@pytest.mark.parametrize(
    ("ended", "named", "option"),
    [
        (RISING, True, True),
        (replace(RISING, state="at chance"), True, True),
        (replace(RISING, state="rate near zero", rise=0.0), True, False),
        (replace(RISING, epochs=None), True, False),
        (replace(RISING, state="finished learning", rise=0.0), False, False),
    ],
)
def test_longer_training_comes_with_its_option(ended: Learning, named: bool, option: bool) -> None:
    said = needs_longer_training([group(single("model_a", learning={1: ended}))])
    assert ("model_a" in said, "--set schedule.stages.1.epochs=12" in said) == (named, option)
