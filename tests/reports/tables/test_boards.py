"""The leaderboard page: groups, shared tables, places and intervals."""

from dataclasses import replace

import pytest

from reports.columns import Cell
from reports.tables.boards import FEW_ROWS, Board, boards
from reports.tables.contents import ONE_MODEL
from reports.tables.leaderboards import absent_levels
from reports.tables.table import Line
from results.runs.leaderboard import Group, Row
from results.runs.spreads import Spread
from results.runs.standings import ALONE, OTHER_IMAGES, STILL_LEARNING, FloorTest, RankInterval
from results.statistics.architecture import NEEDS_SEEDS, OVER_IMAGES, OVER_SEEDS
from results.statistics.estimate import Estimate
from tests.reports.examples import contents, group, row, run


def standing(model: str, of: RankInterval) -> Row:
    return replace(row(model), ranks={"CIDEr-D": of})


def cell(board: Board, line: Line, key: str) -> Cell:
    place = board.table.index(key)
    assert place is not None
    return line.cells[place]


def test_the_largest_group_is_first_and_small_ones_share() -> None:
    small = [group(row("a"), beam=str(beam), separating=("beam",)) for beam in (1, 2)]
    main = group(*(row(name) for name in ("a", "b", "c")), separating=("beam",))
    assert len(small[0].rows) <= FEW_ROWS < len(main.rows)
    first, together = boards(contents(*small, main))
    assert len(first.table.lines) == 3
    assert first.separations == (("beam", "5", ("1", "2")),)
    assert (first.separating_fields, together.separating_fields) == ("beam: 5", "")
    assert [title for title, _ in together.table.other_groups] == ["beam: 1", "beam: 2"]
    assert (together.groups, together.signature) == (2, "")


def test_a_group_with_rewards_is_called_so_beside_one_without() -> None:
    plain = group(*(row(name) for name in "abcd"), separating=("beam", "reward"))
    rewarded = group(*(row(name) for name in "abc"), separating=("beam", "reward"))
    rewarded = replace(rewarded, signature=rewarded.signature | {"reward": "Cider-D"})
    first, second = boards(contents(rewarded, plain))
    assert (first.title, second.title) == ("coco test", "coco test with rewards")
    assert second.separating_fields == "reward: Cider-D, beam: 5", "the first stands where there is little room"
    assert replace(rewarded, separating=("beam",)).name == "coco test", "all tables of the split have rewards"


def test_groups_that_share_a_table_have_places_of_their_own() -> None:
    first, last = RankInterval(1, 2), RankInterval(2, 2, None, 0.01, 0.01)
    small = [
        group(standing("a", first), standing("b", last), beam="1", separating=("beam",)),
        group(standing("a", first), beam="2", separating=("beam",)),
    ]
    _, together = boards(contents(*small, group(*map(row, "abc"), separating=("beam",))))
    shown = [[cell(together, line, "place").text for line in lines] for _, lines in together.table.other_groups]
    assert shown == [["1–2", "2"], [""]], "a row alone is told from none"


def test_a_row_without_a_place_says_why_and_what_to_type() -> None:
    reasons = (NEEDS_SEEDS, STILL_LEARNING, OTHER_IMAGES, ALONE)
    rows = [standing(name, RankInterval(reason=why)) for name, why in zip("abcd", reasons, strict=True)]
    [board] = boards(contents(group(*rows)))
    cells = [cell(board, line, "place") for line in board.table.lines]
    assert [each.text for each in cells] == ["needs seeds", "still learning", OTHER_IMAGES, ""]
    assert [each.value for each in cells] == [None] * 4
    assert ["--seeds 3" in cells[0].note, "--place-unfinished" in cells[1].note] == [True, True]
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


def test_a_row_alone_in_its_group_may_be_below_a_floor() -> None:
    tests = (
        FloorTest("majority", Estimate(0.1, p=0.4)),
        FloorTest("retrieval", Estimate(-0.1, p=0.0012)),
        FloorTest("x", Estimate(1, p=0)),
    )
    [board] = boards(contents(group(standing("a", RankInterval(floors=tests)))))
    place = cell(board, board.table.lines[0], "place")
    assert (place.text, place.value) == ("not above the floor", None)
    assert all(part in place.note for part in ("better than majority (p = 0.4)", "worse than retrieval (p = 0.0012)"))
    [board] = boards(contents(group(standing("blind", RankInterval(is_floor=True)))))
    assert board.table.index("place") is None, "a floor alone needs no column"


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
    assert main.fields_beside(other) == {"data": "coco#1", "track": "references"}
    assert other.fields_beside(main) == {**main.fields, "data": "coco#2"}
