"""The leaderboard page: groups, shared tables, places, people and objectives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from reports.tables.facts import NOT_STATED, objective
from reports.tables.leaderboard_page import FEW_ROWS, boards
from reports.tables.people import People, beside_people
from results.records import Quantity
from results.runs.leaderboard import Row, leaderboard
from results.runs.run import Run
from results.runs.spreads import Spread
from results.runs.standings import ALONE, OTHER_IMAGES, STILL_LEARNING, FloorTest, Standing
from results.statistics.architecture import NEEDS_SEEDS, OVER_IMAGES, OVER_SEEDS
from results.store.store import Store
from tests.reports.examples import group, row, run, staged


@pytest.mark.parametrize(
    ("detail", "said"),
    [
        (staged("cross_entropy"), "XE"),
        (staged("cross_entropy", "cross_entropy", "self_critical"), "XE + SCST"),
        (staged("cross_entropy", "reinforce"), "XE + REINFORCE"),
        (run(pretrained="somewhere"), "pretrained"),
        (run(stored={}), "stored"),
        (run(), NOT_STATED),
        (run(preset={"schedule": None}), NOT_STATED),
        (replace(run(), role="reference"), "untrained"),
    ],
)
def test_the_objective_is_told_from_the_stages(detail: Run, said: str) -> None:
    assert objective(detail) == said


def test_the_largest_group_is_first_and_small_ones_share() -> None:
    small = [group(row("a"), beam=str(beam), separating=("beam",)) for beam in (1, 2)]
    main = group(*(row(name) for name in ("a", "b", "c")), separating=("beam",))
    assert len(small[0].rows) <= FEW_ROWS < len(main.rows)
    first, together = boards([*small, main], [], {"k": run()})
    assert len(first.table.lines) == 3
    assert [(each.own, each.others) for each in first.separations] == [("5", ("1", "2"))]
    assert (first.apart, together.apart) == ("beam: 5", "")
    assert [body.title for body in together.table.apart] == ["beam: 1", "beam: 2"]
    assert together.groups == 2
    assert not together.signature


def test_a_group_with_rewards_is_called_so_beside_one_without() -> None:
    plain = group(*(row(name) for name in "abcd"), separating=("beam", "reward"))
    rewarded = group(*(row(name) for name in "abc"), separating=("beam", "reward"))
    rewarded = replace(rewarded, signature=rewarded.signature | {"reward": "Cider-D"})
    first, second = boards([rewarded, plain], [], {"k": run()})
    assert (first.title, second.title) == ("coco test", "coco test with rewards")
    assert second.verdict[0].startswith("No model has a place yet on coco test with rewards:")
    assert second.apart == "reward: Cider-D, beam: 5", "the first stands where there is little room"
    alone = replace(rewarded, separating=("beam",))
    assert alone.name == "coco test", "all tables of the split have rewards"


def test_groups_that_share_a_table_have_places_of_their_own() -> None:
    standings = Standing(1, 2), Standing(2, 2, None, 0.01, 0.01)
    pair = [replace(row(name), standings={"CIDEr-D": each}) for name, each in zip("ab", standings, strict=True)]
    alone = replace(row("a"), standings={"CIDEr-D": standings[0]})
    small = [group(*pair, beam="1", separating=("beam",)), group(alone, beam="2", separating=("beam",))]
    _, together = boards([*small, group(*(row(name) for name in "abc"), separating=("beam",))], [], {"k": run()})
    place = [heading.name for heading in together.table.headings].index("Place")
    shown = [[line.cells[place].text for line in body.lines] for body in together.table.apart]
    assert shown == [["1–2", "2"], [""]], "a row alone is told from none"


def test_a_row_without_a_place_says_why_and_what_to_type() -> None:
    reasons = (NEEDS_SEEDS, STILL_LEARNING, OTHER_IMAGES, ALONE)
    rows = [
        replace(row(name), standings={"CIDEr-D": Standing(reason=why)})
        for name, why in zip("abcd", reasons, strict=True)
    ]
    [board] = boards([group(*rows)], [], {"k": run()})
    place = [heading.name for heading in board.table.headings].index("Place")
    cells = [line.cells[place] for line in board.table.lines]
    assert [cell.text for cell in cells] == ["needs seeds", "still learning", OTHER_IMAGES, ""]
    assert [cell.value for cell in cells] == [None] * 4
    notes = {mark: reason for reason, mark in board.table.notes.marks.items()}
    assert notes[cells[0].mark].endswith("(--seeds 3)")
    assert notes[cells[1].mark].endswith("(--place-unfinished places it)")


def test_the_interval_of_one_seed_is_marked() -> None:
    over = {"weights": OVER_IMAGES, "architecture": OVER_SEEDS}
    rows = [
        replace(row(name), scores={"CIDEr-D": Spread(1.0, None, 1, None, 0.9, 1.1, what)})
        for name, what in over.items()
    ]
    [board] = boards([group(*rows)], [], {"k": run()})
    weights, architecture = (line.cells[1] for line in board.table.lines)
    assert weights.text == architecture.text == "90.0–110.0"
    sentence = "one seed: the 95 % interval is of these weights, over images"
    assert (weights.reason, board.table.notes.marks[sentence]) == (sentence, weights.mark)
    assert (architecture.mark, architecture.reason) == ("", OVER_SEEDS)


def test_a_row_alone_in_its_group_may_be_below_a_floor() -> None:
    tests = (
        FloorTest("majority", 0.1, 0.4, False),
        FloorTest("retrieval", -0.1, 0.0012, True),
        FloorTest("x", 1, 0, True),
    )
    [board] = boards([group(replace(row("a"), standings={"CIDEr-D": Standing(floors=tests)}))], [], {"k": run()})
    place = [heading.name for heading in board.table.headings].index("Place")
    cell = board.table.lines[0].cells[place]
    assert (cell.text, cell.value) == ("not above the floor", None)
    assert cell.reason == (
        "not above the floor: not significantly better than majority (p = 0.4), "
        "significantly worse than retrieval (p = 0.0012)"
    )
    assert board.table.notes.marks[cell.reason] == cell.mark
    [board] = boards([group(replace(row("blind"), standings={"CIDEr-D": Standing(is_floor=True)}))], [], {"k": run()})
    assert "Place" not in [heading.name for heading in board.table.headings], "a floor alone needs no column"


def test_people_are_compared_where_they_were_scored_alike() -> None:
    scored = replace(row("a"), held_out={"CIDEr-D": Spread(0.4, None, 1)})
    differs = {"nrefs": "test=4,nocaps=9", "heldout": "each", "beam": "none", "v": "0.4.0"}
    human = replace(row("human"), role="reference", held_out={"CIDEr-D": Spread(2.0, None, 1)}, differs=differs)

    def beside(human: Row, *rows: Row, split: str = "test") -> People | None:
        return beside_people(replace(group(*rows), split=split, references=(human,)))

    better = replace(scored, model="b", held_out={"CIDEr-D": Spread(0.5, None, 1)})
    found = beside(human, scored, better, row("without"))
    assert found is not None
    assert [(line.model, line.differs, line.cells[0].text) for line in found.table.lines] == [
        ("human", "", "200.0"), ("b", "", "50.0"), ("a", "", "40.0"),
    ]  # fmt: skip
    assert found.note.startswith("Against 4 references")
    nocaps = beside(human, scored, split="nocaps")
    assert nocaps is not None
    assert nocaps.note.startswith("Against 9 references")
    assert beside(human, row("without")) is None
    assert beside(replace(human, held_out={}), scored) is None
    for field in ("tok", "rev"):
        assert beside(replace(human, differs=differs | {field: "other"}), scored) is None


def test_quartiles_of_latency_reach_the_leaderboard(tmp_path: Path) -> None:
    from results.records import DatasetRecord, Outcome, RunSpec, SplitResult

    with Store(tmp_path / "bench.sqlite") as store:
        store.record_dataset(DatasetRecord("d", "d#1", str(tmp_path), {}, ()))
        for seed, at in ((1, 0.2), (2, 0.4)):
            store.plan([RunSpec(f"k{seed}", "m", "model", seed, "controlled", "d#1", {}, {})])
            costs = {"latency_median": Quantity(at, None, "s", at - 0.1, at + 0.1)}
            result = SplitResult("test", {}, {"overall": {"CIDEr-D": Quantity(1.0)}}, {})
            store.finish(f"k{seed}", Outcome((result,), costs, {}))
        [found] = leaderboard(store)
    cost = found.rows[0].costs["latency_median"]
    assert (cost.value, cost.low, cost.high) == pytest.approx((0.3, 0.2, 0.4))
