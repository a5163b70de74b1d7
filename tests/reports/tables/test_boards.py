"""The leaderboard page: groups, shared tables, places and intervals."""

from dataclasses import replace

import pytest

from reports.columns import Cell
from reports.tables.boards import Board, boards
from reports.tables.contents import ONE_MODEL
from reports.tables.leaderboards import absent_levels
from reports.tables.table import Line
from results.runs.leaderboard import Group, Row
from results.runs.spreads import Spread
from results.runs.standings import ALONE, OTHER_IMAGES, STILL_LEARNING, BaselineTest, RankInterval
from results.statistics.architecture import NEEDS_SEEDS, OVER_IMAGES, OVER_SEEDS
from results.statistics.estimate import Estimate
from tests.reports.examples import contents, group, row, run


def standing(model: str, of: RankInterval) -> Row:
    return replace(row(model), ranks={"CIDEr-D": of})


def cell(board: Board, line: Line, key: str) -> Cell:
    place = board.table.index(key)
    assert place is not None
    return line.cells[place]


def test_the_largest_group_is_first_and_each_has_a_page() -> None:
    small = [group(row("a"), beam=str(beam), separating=("beam",)) for beam in (1, 2)]
    main = group(*(row(name) for name in ("a", "b", "c")), separating=("beam",))
    found = boards(contents(*small, main))
    assert [board.file for board in found] == ["index.html", "leaderboard-2.html", "leaderboard-3.html"]
    assert [len(board.table.lines) for board in found] == [3, 1, 1]
    assert found[0].separations == (("beam", "5", ("1", "2")),)
    assert [board.title for board in found] == ["coco, test, beam: 5", "coco, test, beam: 1", "coco, test, beam: 2"]


def test_a_group_with_rewards_is_called_so_beside_one_without() -> None:
    plain = group(*(row(name) for name in "abcd"), separating=("reward",))
    rewarded = group(*(row(name) for name in "abc"), separating=("reward",))
    rewarded = replace(rewarded, signature=rewarded.signature | {"reward": "Cider-D", "schedule": "xe#a1b2c3"})
    first, second = boards(contents(rewarded, plain))
    assert (first.conditions.training, second.conditions.training) == ("", "xe with rewards")


def test_a_better_row_under_other_conditions_is_told() -> None:
    main = group(row("a", cider=1.0), row("b", cider=0.9), separating=("beam",))
    other = group(row("c", cider=1.2), beam="1", separating=("beam",))
    first, second = boards(contents(main, other))
    assert all(word in first.elsewhere for word in ("beam: 1", "c scores 120.0"))
    assert (second.elsewhere, first.best) == ("", "a")


def test_a_badge_of_every_model_is_said_of_the_table() -> None:
    rows = [replace(row(name), unmatched="why") for name in "ab"]
    [board] = boards(contents(group(*rows)))
    assert ([*board.table.common_badges], board.table.symbols) == (["size not matched"], {})
    [board] = boards(contents(group(*rows, row("c"))))
    assert (board.table.common_badges, [*board.table.symbols]) == ({}, ["size not matched"])


def test_the_best_scores_and_the_best_rows_are_marked() -> None:
    first, second = standing("a", RankInterval(1, 2)), standing("b", RankInterval(2, 2))
    [board] = boards(contents(group(replace(first, scores=row("a", cider=1.5).scores), second)))
    score = board.table.index("CIDEr-D")
    assert score is not None
    assert board.table.best_texts[score] == "150.0"
    assert [board.table.is_top(line) for line in board.table.lines] == [True, False]


def test_a_row_without_a_place_says_why_and_what_to_type() -> None:
    reasons = (NEEDS_SEEDS, STILL_LEARNING, OTHER_IMAGES, ALONE)
    rows = [standing(name, RankInterval(reason=why)) for name, why in zip("abcd", reasons, strict=True)]
    [board] = boards(contents(group(*rows)))
    cells = [cell(board, line, "rank") for line in board.table.lines]
    assert [each.text for each in cells] == ["needs seeds", "still learning", OTHER_IMAGES, "alone"]
    assert [each.value for each in cells] == [None] * 4
    assert ["--seeds 3" in cells[0].note, "--rank-unconverged" in cells[1].note] == [True, True]
    assert {each.note for each in cells} - {""} <= board.table.marks.keys()


def test_the_interval_of_one_seed_is_marked() -> None:
    rows = [
        replace(row(name), scores={"CIDEr-D": Spread(1.0, None, 1, None, 0.9, 1.1, over)})
        for name, over in (("weights", OVER_IMAGES), ("architecture", OVER_SEEDS))
    ]
    [board] = boards(contents(group(*rows)))
    weights, architecture = (cell(board, line, "interval") for line in board.table.lines)
    assert weights.text == architecture.text == "90.0–110.0"
    assert (OVER_IMAGES in weights.note, architecture.note) == (True, "")


def test_a_row_alone_in_its_group_may_be_below_a_baseline() -> None:
    tests = (
        BaselineTest("majority", Estimate(0.1, p=0.4)),
        BaselineTest("retrieval", Estimate(-0.1, p=0.0012)),
        BaselineTest("x", Estimate(1, p=0)),
    )
    [board] = boards(contents(group(standing("a", RankInterval(baselines=tests)))))
    rank = cell(board, board.table.lines[0], "rank")
    assert (rank.text, rank.value) == ("not above a baseline", None)
    assert all(part in rank.note for part in ("better than majority (p = 0.4)", "worse than retrieval (p = 0.0012)"))
    [board] = boards(contents(group(standing("blind", RankInterval(is_baseline=True)))))
    assert board.table.index("rank") is None, "a baseline alone needs no column"


def test_levels_that_were_not_measured_are_named() -> None:
    human = replace(row("human"), role="reference")
    found = group(row("a"))
    assert "majority,human" in absent_levels(found)
    assert absent_levels(replace(found, references=(human, replace(human, model="majority")))) == ""
    assert absent_levels(replace(found, rows=())) == ""


@pytest.mark.parametrize("nrefs", ["1", "test=1,nocaps=10"])
def test_people_are_not_asked_for_where_images_have_one_reference(nrefs: str) -> None:
    trained = replace(group(row("a")), split="test", signature={"nrefs": nrefs})
    captions = replace(trained, track="captions")
    assert "majority" in absent_levels(trained)
    assert "human" not in absent_levels(trained) + absent_levels(captions)
    several = {"signature": {"nrefs": "test=5,nocaps=1"}}
    assert "human" in absent_levels(replace(trained, **several))
    assert "human" in absent_levels(replace(captions, **several))


def test_families_of_one_model_are_one_to_choose_by() -> None:
    runs = {
        name: replace(run(card={"family": family}), key=name, model=name)
        for name, family in (("a/x", "a"), ("a/y", "a"), ("b", "b"), ("c", "c"))
    }
    runs["human"] = replace(run(), model="human", role="reference")
    assert contents(runs=runs).families == {"a/x": "a", "a/y": "a", "b": ONE_MODEL, "c": ONE_MODEL}


def test_references_of_other_data_have_a_table_and_take_no_condition_away() -> None:
    main = group(*map(row, "abc"), separating=("data",))
    other = Group("coco", "coco#2", "test", "references", references=(row("human"),), separating=("data",))
    first, second = boards(contents(main, other))
    assert [board.separations for board in (first, second)] == [
        (("data", "coco#1", ("coco#2",)),),
        (("data", "coco#2", ("coco#1",)),),
    ]
    assert [line.model for line in second.table.references] == ["human"]
    assert main.fields_compared_with(other) == {"data": "coco#1", "track": "references"}
    assert other.fields_compared_with(main) == {**main.fields, "data": "coco#2"}
