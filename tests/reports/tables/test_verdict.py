"""The verdict in words: from places, seeds and how trainings ended."""

from dataclasses import replace

import pytest

from reports.tables.verdict import (
    as_given_note,
    headline,
    needs_longer_training,
    no_ranks,
    part_of_split_note,
    verdict,
)
from results.records import Quantity
from results.runs.leaderboard import Group, Row
from results.runs.spreads import OtherMachine
from results.runs.standings import ALONE, NO_SCORES, BaselineTest, Comparisons, RankInterval, RowPair
from results.statistics.architecture import NEEDS_SEEDS
from results.statistics.estimate import Estimate
from results.statistics.learning import Learning
from tests.reports.examples import group, row

RISING = Learning("still learning", 8, 0.123, 0.01, stage=1, epochs=6)
ELSEWHERE = {"train_seconds": OtherMachine("trained on EPYC, most others on Xeon", ())}


def placed(model: str, best: int, worst: int, seconds: float | None = None, **changes: object) -> Row:
    costs = {} if seconds is None else {"train_seconds": Quantity(seconds, unit="s")}
    place = {"CIDEr-D": RankInterval(best, worst)}
    return replace(row(model), seeds=(1, 2, 3), keys=(f"{model}1",), costs=costs, **{"ranks": place} | changes)  # type: ignore[arg-type]


def single(model: str, **changes: object) -> Row:
    return replace(row(model), keys=(model,), ranks={"CIDEr-D": RankInterval(reason=NEEDS_SEEDS)}, **changes)  # type: ignore[arg-type]


def standing(model: str, of: RankInterval) -> Row:
    return placed(model, 1, 1, ranks={"CIDEr-D": of})


LOW = standing(
    "low", RankInterval(reason="not above a baseline", baselines=(BaselineTest("blind", Estimate(0.0, p=1.0)),))
)
FLOOR = standing("blind", RankInterval(is_baseline=True))
ALL = [placed("a", 1, 2), placed("b", 1, 2)]


@pytest.mark.parametrize(
    ("rows", "parts"),
    [
        (
            [placed("a", 1, 2, 76), placed("b", 1, 2, 56), placed("c", 3, 3, 1)],
            ["b trains in 56.0\u202fs, a in 1\u202fmin 16\u202fs"],
        ),
        ([placed("a", 1, 2, 76), placed("b", 1, 2, 56, other_machines=ELSEWHERE)], []),
        (
            [*(single(name, learning={1: RISING}) for name in "ab"), single("c")],
            ["all 3 have one seed, 2 were still", "--seeds 3"],
        ),
        (
            [placed("a", 1, 1), placed("b", 2, 2), single("c"), LOW, FLOOR],
            ["2 of 4 models", "c has one seed, low is not significantly better than a baseline"],
        ),
        ([placed("a", 1, 1, learning={1: RISING}), placed("b", 2, 2)], ["1 of 2", "still learning"]),
        ([standing("a", RankInterval(reason=ALONE))], ["No model has a rank", "no two models"]),
        ([standing("b", RankInterval(reason=NO_SCORES))], ["CIDEr-D"]),
    ],
)
def test_it_names_the_best_or_says_why_not(rows: list[Row], parts: list[str]) -> None:
    said = " ".join(verdict(group(*rows)))
    assert [part for part in parts if part not in said] == []
    assert ("trains in" in said) == any("trains in" in part for part in parts), "times of two machines are not compared"


def test_the_first_line_counts_what_the_leader_is_better_than_and_what_is_not_known() -> None:
    rows = [placed(name, 1, 4) for name in "abcd"]
    pairs = (
        RowPair(0, 1, Estimate(0.01, -0.01, 0.03, 0.3), "same"),
        RowPair(0, 2, Estimate(0.1, -0.05, 0.25, 0.2), "unknown", 6, 900),
        RowPair(0, 3, Estimate(0.5, 0.4, 0.6, 0.001), "better"),
        RowPair(1, 2, Estimate(0.09, -0.06, 0.24, 0.2), "unknown", 7, None),
        RowPair(1, 3, Estimate(0.49, 0.4, 0.6, 0.001), "better"),
        RowPair(2, 3, Estimate(0.4, 0.3, 0.5, 0.001), "better"),
    )
    found = Comparisons("CIDEr-D", 300, (1, 2, 3), (0, 1, 2, 3), pairs, 0.05, "human", 30.0, 0.4)
    first, second, *_ = verdict(replace(group(*rows), comparisons=found))
    assert first.startswith("a leads on ")
    assert "better than d; the same as b within 5.0 points (2 % of human); too close to c to call" in first
    assert "3 of 6 differences are significant, 1 equivalent within 5.0 points" in second
    assert "6 seeds would settle 1 of the other 2 (80 % power)" in second


def test_a_leader_that_an_unfinished_model_beats_is_no_winner() -> None:
    rows = [standing("ahead", RankInterval(reason="still learning")), placed("a", 2, 2)]
    pairs = (RowPair(0, 1, Estimate(0.5, 0.4, 0.6, 0.001), "better"),)
    found = Comparisons("CIDEr-D", 300, (1, 2, 3), (0, 1), pairs, 0.05, None, None, None)
    assert "worse than ahead, which had not finished learning" in verdict(replace(group(*rows), comparisons=found))[0]


def test_baselines_alone_have_no_verdict() -> None:
    assert verdict(group()) == verdict(group(FLOOR)) == ()


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


def test_a_training_of_few_updates_is_made_as_long_as_learning_takes() -> None:
    few = single("model_a", learning={1: replace(RISING, state="at chance", stage=0)})
    assert "--budgets 1,125" in needs_longer_training([group(replace(few, costs={"train_steps": Quantity(4.0)}))])


def test_models_without_a_place_are_counted_once_for_all_tables() -> None:
    several = [group(single("a"), single("b")), group(single("a", learning={1: RISING}))]
    said = " ".join(no_ranks(several))
    assert "both have one seed, a was still learning" in said
    assert said.count("--seeds 3") == 1
    assert no_ranks([*several, group(*ALL)]) == (), "then every table says its own"


def of_files(**files: int) -> Group:
    """A table of captions, by system the number of its files; nothing was compared."""
    rows = [replace(row(model), seeds=tuple(range(count))) for model, count in files.items()]
    return replace(group(*rows), track="systems")


def test_sign_flips_are_said_of_systems_of_one_file() -> None:
    assert as_given_note([of_files(ours=2, theirs=2)]) == "", "their intervals are over files"
    assert not any("sign flips" in sentence for sentence in verdict(of_files(ours=2, theirs=2)))
    assert as_given_note([group(single("trained"))]) == ""
    everything = as_given_note([of_files(ours=1, theirs=1)])
    assert everything.startswith("Captions of one training each")
    for groups in ([of_files(ours=2, theirs=1)], [of_files(ours=2), of_files(theirs=1)]):
        named = as_given_note(groups)
        assert named.startswith("theirs: ")
        assert "sign flips" in named
        assert "ours" not in named


def test_systems_of_several_files_that_are_compared_as_they_are() -> None:
    table = of_files(ours=2, theirs=1)
    pairs = (RowPair(0, 1, Estimate(0.5, 0.4, 0.6, 0.001), "better"),)
    compared = Comparisons("CIDEr-D", 300, (), (0, 1), pairs, 0.05, None, None, None)
    over_seeds = replace(compared, seeds=(0, 1))
    assert replace(table, comparisons=compared).is_as_given
    assert not replace(table, comparisons=over_seeds).is_as_given
    placed_rows = tuple(replace(system, ranks={"CIDEr-D": RankInterval(1, 2)}) for system in table.rows)
    first, *_ = verdict(replace(table, rows=placed_rows, comparisons=compared))
    assert "one training each" not in first, "one system has two files"


def test_levels_of_all_images_are_noted_beside_captions_of_a_part() -> None:
    table = replace(of_files(ours=1), signature={"subset": "test=20/40#1a2b3c,val=3/5#4d5e6f"})
    levels = tuple(replace(row(name), role="reference", differs={"subset": None}) for name in ("human", "majority"))
    said = part_of_split_note(replace(table, references=levels))
    assert "20 of 40 images; human and majority are scored on all 40" in said
    assert said in no_ranks([replace(table, references=levels)])
    assert part_of_split_note(table) == "", "nothing stands beside them"
    assert part_of_split_note(replace(table, split="other", references=levels)) == "", "which has all its captions"
    assert part_of_split_note(replace(of_files(ours=1), references=levels)) == ""


@pytest.mark.parametrize(("second", "words"), [(0.9, "10.0 above b"), (1.0, "level with b")])
def test_the_headline_says_by_how_much(second: float, words: str) -> None:
    said = headline(group(row("a", cider=1.0), row("b", cider=second)))
    assert said.startswith(f"a scores highest, 100.0 CIDEr-D, {words}.")


def test_models_below_a_baseline_have_no_winner() -> None:
    below = RankInterval(reason="not above a baseline", baselines=(BaselineTest("majority", Estimate(-0.4, p=0.001)),))
    table = group(standing("a", below), standing("b", below))
    said = headline(replace(table, references=(row("majority", cider=0.452),)))
    assert said.startswith("None of the 2 models is significantly better than the baseline majority (45.2 CIDEr-D).")
    assert "highest" not in said


def test_models_that_score_below_a_baseline_are_called_no_good() -> None:
    below = RankInterval(reason="not above a baseline", baselines=(BaselineTest("majority", Estimate(-0.4, p=0.001)),))
    table = group(standing("a", below), standing("b", below))
    said = headline(replace(table, references=(row("majority", cider=1.2),)))
    assert said.startswith("All 2 models score below the baseline majority (120.0 CIDEr-D)")
