"""The leaderboard in an 80-column terminal."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from sqlalchemy import delete, update

from reports.tables.tables import absent_levels
from reports.text.terminal import print_leaderboard
from results.runs.leaderboard import leaderboard
from results.store.schema import HeldOutScore, RunRow, Score
from results.store.store import Store

NOT_RUN = {"value": None, "reason": "not run: its models are not installed", "low": None, "high": None}


def printed(store: Store, width: int = 80, colour: bool = False) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=colour)
    print_leaderboard(store, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def header(store: Store, width: int) -> list[str]:
    lines = printed(store, width).splitlines()
    return re.split(" {2,}", next(line for line in lines if line.split()[:1] == ["Place"]).strip())


def test_rows_fit_80_columns_and_no_number_wraps(store: Store) -> None:
    text = printed(store)
    assert max(len(line) for line in text.splitlines()) <= 80
    row = next(line for line in text.splitlines() if line.startswith("expansionnet_v2"))
    shown = ["expansionnet_v2 ×2", "1", "104.9", "81.8–127.9", "0.9", "54.3", "78.6 M", "12.3 ms"]
    assert re.split(" {2,}", row) == shown
    assert header(store, 80) == ["Place", "C", "95 %", "±", "B-4", "MAC", "Latency"]


def test_metrics_and_costs_join_as_there_is_room(store: Store) -> None:
    medium = ["Place", "C", "95 %", "±", "B-4", "M", "R", "MAC", "Latency", "Training"]
    assert header(store, 100) == medium
    assert header(store, 200) == [*medium[:7], "B-1", "B-2", "B-3", "MAC", "Params", "Latency", "Training"]


def test_long_names_break_after_one_of_their_own_signs(store: Store) -> None:
    with store.writing() as connection:
        long = "expansionnet_v2/no-dynamic-expansion/no-forward-expansion/one_more"
        connection.execute(update(RunRow).where(RunRow.model == "expansionnet_v2").values(model=long))
    lines = printed(store).splitlines()
    table = next(number for number, line in enumerate(lines) if line.split()[:1] == ["Place"])
    start = next(number for number in range(table, len(lines)) if lines[number].startswith("expansionnet_v2/"))
    assert lines[start].split()[0] == "expansionnet_v2/no-dynamic-expansion/"
    assert lines[start + 1].split()[0] == "no-forward-expansion/one_more"


def test_intervals_push_out_what_matters_less(store: Store) -> None:
    with store.writing() as connection:
        bounds = {"low": 0.95 * Score.value, "high": 1.05 * Score.value}
        connection.execute(update(Score).where(Score.value.is_not(None)).values(bounds))
        connection.execute(update(Score).where(Score.metric == "BLEU-3").values(metric="SPICE", **NOT_RUN))
    text = printed(store)
    assert max(len(line) for line in text.splitlines()) <= 80
    assert header(store, 80) == ["Place", "C", "95 %", "±", "B-4", "MAC", "Latency"]
    assert "81.8–127.9" in next(line for line in text.splitlines() if line.startswith("expansionnet_v2"))
    assert re.search(r"^show_tell_lstm .* 60\.8–67\.2 \w\) ", text, re.MULTILINE), "of one seed, with a note"
    gone = "No room here for M, R, B-1, B-2, Params, Training; bench report shows every column."
    assert gone in " ".join(text.split())
    narrow = printed(store, width=40)
    row = next(line for line in narrow.splitlines() if line.startswith("expansionnet_v2 ×2"))
    assert "104.9" in row
    assert "81.8" not in row, "rather no interval than half of one"
    assert "SPICE: not run: its models are not installed" in text, "a column without a number is left out"


def test_the_tests_behind_the_places_are_named(store: Store) -> None:
    text = " ".join(printed(store).split())
    assert (
        text.count("Place: the ranks that the differences in CIDEr-D between all rows allow, over seeds and images")
        == 1
    )


def test_the_verdict_comes_before_its_table(store: Store) -> None:
    text = printed(store)
    said, header = (
        text.index("Best of 2 placed models on scenes test: expansionnet_v2 (place 1, 2 seeds)."),
        text.index("Place      C"),
    )
    assert text.index("scenes test, controlled track") < said < header
    assert "Still learning when the training ended: show_tell_lstm." in text


def test_another_metric_sorts_and_places(store: Store) -> None:
    console = Console(file=io.StringIO(), width=80)
    print_leaderboard(store, console, "ROUGE-L")
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "No model has a place yet" in text, "the store has no scores of images on this metric"
    columns = next(line for line in text.splitlines() if line.split()[:1] == ["Place"])
    assert columns.split() == ["Place", "R", "95", "%", "±", "C", "B-4", "MAC", "Latency"], "what sorts stands first"


def test_references_groups_and_failures_are_separate(store: Store) -> None:
    text = printed(store)
    order = [
        "scenes test",
        "expansionnet_v2",
        "blind",
        "reference, not ranked",
        "human",
        "here beam: 3",
        "here beam: 1",
    ]
    positions = [text.index(words) for words in order]
    assert positions == sorted(positions)
    for words in ("b) METEOR took longer", "failed   aoanet, seed 1", "FloatingPointError: the loss is NaN", "updown"):
        assert words in text


def test_a_leaderboard_says_which_levels_it_does_not_show(store: Store) -> None:
    assert "Not measured yet: the floor; add majority to --models." in printed(store)
    [group, *_] = leaderboard(store)
    assert absent_levels(replace(group, references=())).startswith("Not measured yet: the floor and the human level;")
    [human] = [row for row in group.references if row.model == "human"]
    assert absent_levels(replace(group, references=(human, replace(human, model="majority")))) == ""
    assert absent_levels(replace(group, rows=())) == ""


def test_a_row_below_a_floor_has_a_note_in_place_of_a_place(store: Store) -> None:
    text = printed(store)
    nocaps = text[text.index("scenes nocaps") :]
    assert re.search(r"^transformer_base ×2 +— d\) ", nocaps, re.MULTILINE)
    assert re.search(r"^blind +floor ", nocaps, re.MULTILINE)
    note = "d) not above the floor: not significantly better than blind (p = 0.19) and retrieval (p = 0.19)"
    assert note in " ".join(nocaps.split())
    assert "A row that is not significantly above every floor has no place." in " ".join(text.split())


def test_people_stand_above_models_that_are_scored_like_them(store: Store) -> None:
    text = printed(store)
    people = text[text.index("Against the same references as people, scenes test") :]
    lines = people.splitlines()
    assert lines[1].split() == ["C", "B-4", "M", "R"]
    assert [line.split()[0] for line in lines[3:5]] == ["human", "expansionnet_v2"]
    assert "in turn. The captions of human are the references left out." in people
    assert "as people, scenes nocaps" not in text
    with store.writing() as connection:
        connection.execute(delete(HeldOutScore))
    assert "as people" not in printed(store), "stores of older releases"


@pytest.mark.parametrize("colour", [False, True])
def test_no_control_character_of_the_data_reaches_the_terminal(store: Store, colour: bool) -> None:
    store.fail("aoanet-s1-plain", "Bad\x1b]0;title\x07", "reason \x1b[2J [red]not markup[/red]", "")
    text = printed(store, colour=colour)
    assert "\x1b]0" not in text
    assert "\x1b[2J" not in text
    assert "[red]not markup[/red]" in text


def test_an_empty_store_says_so(tmp_path: Path) -> None:
    with Store(tmp_path / "bench.sqlite") as empty:
        assert printed(empty) == "No run has finished yet.\n"
