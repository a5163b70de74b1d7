"""The leaderboard on terminals of several widths."""

import io
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from sqlalchemy import delete, update

from reports.tables.verdict import PairCell
from reports.text.terminal import print_leaderboard, print_pair_table
from results.store.schema import HeldOutScore, RunRow, Score
from results.store.store import Store

NOT_RUN = {"value": None, "reason": "not run: its models are not installed", "low": None, "high": None}


def printed(store: Store, width: int = 80, *, colour: bool = False, **asked: Any) -> str:
    file = io.StringIO()
    print_leaderboard(store, Console(file=file, width=width, force_terminal=colour), **asked)
    return file.getvalue()


def header(text: str) -> list[str]:
    """Of the first table, without what stands over the names."""
    line = next(line for line in text.splitlines() if "Rank" in line.split())
    return re.split(" {2,}", line[line.index("Rank") :].strip())


def row(text: str, name: str) -> list[str]:
    """The cells of a model's line: its name, and two spaces or more between them."""
    lines = (re.split(" {2,}", line.strip()) for line in text.splitlines() if line.startswith(name))
    return next(cells for cells in lines if len(cells) > 1)


def test_rows_fit_80_columns_and_no_number_wraps(store: Store) -> None:
    text = printed(store)
    assert max(len(line) for line in text.splitlines()) <= 80
    assert header(text) == ["Rank", "C", "95 %", "B-4", "MAC", "Latency"]
    shown = ["expansionnet_v2 ×2", "1", "104.9 ±0.9", "81.8–127.9", "54.3", "78.6 M", "12.3 ms"]
    assert row(text, "expansionnet_v2") == shown


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (40, ["Rank", "C", "B-4"]),
        (100, ["Rank", "C", "95 %", "B-4", "M", "MAC", "Latency", "Training"]),
        (200, ["Rank", "C", "95 %", "B-4", "M", "R", "B-1", "B-2", "B-3", "Params", "MAC", "Latency", "Training"]),
    ],
)
def test_metrics_and_costs_join_as_there_is_room(store: Store, width: int, columns: list[str]) -> None:
    text = printed(store, width)
    assert header(text) == columns
    assert ("Hidden columns" in text) == (width < 200)


def test_long_names_break_after_one_of_their_own_signs(store: Store) -> None:
    with store.writing() as connection:
        long = "expansionnet_v2/no-dynamic-expansion/no-forward-expansion/one_more"
        connection.execute(update(RunRow).where(RunRow.model == "expansionnet_v2").values(model=long))
    lines = printed(store).splitlines()
    table = next(number for number, line in enumerate(lines) if "Rank" in line.split())
    start = next(number for number in range(table, len(lines)) if lines[number].startswith("expansionnet_v2/"))
    assert lines[start].split()[0] == "expansionnet_v2/no-dynamic-expansion/"
    assert lines[start + 1].split()[0] == "no-forward-expansion/one_more"


def test_one_seed_s_interval_has_a_note_and_a_metric_that_was_not_run_none(store: Store) -> None:
    with store.writing() as connection:
        bounds = {"low": 0.95 * Score.value, "high": 1.05 * Score.value}
        connection.execute(update(Score).where(Score.value.is_not(None)).values(bounds))
        connection.execute(update(Score).where(Score.metric == "BLEU-3").values(metric="SPICE", **NOT_RUN))
    text = printed(store)
    assert max(len(line) for line in text.splitlines()) <= 80
    found = re.search(r"^show_tell_lstm .* 60\.8–67\.2 (\w)\) ", text, re.MULTILINE)
    assert found
    assert f"\n{found[1]}) one seed: " in text
    assert "SPICE" not in text, "a column without a number is left out, without a word"


def test_another_metric_sorts_and_places(store: Store) -> None:
    assert header(printed(store, metric="ROUGE-L"))[:4] == ["Rank", "R", "95 %", "C"], "what sorts stands first"


def test_verdict_references_groups_and_failures_are_in_order(store: Store) -> None:
    text = printed(store)
    order = [
        *("scenes test, controlled track", "expansionnet_v2 leads on scenes test"),
        *("blind", "reference, not ranked", "human", "here beam: 3", "here beam: 1"),
        *("Still learning when the training ended: show_tell_lstm.", "failed   aoanet, seed 1"),
    ]
    positions = [text.index(words) for words in order]
    assert positions == sorted(positions)
    assert all(part in text for part in (") METEOR took longer", "FloatingPointError: the loss is NaN", "updown"))
    assert text.count("Rank: ") == 1
    below = text[text.index("failed   aoanet, seed 1") :]
    assert "expansionnet_v2 leads on scenes test" in below, "of several tables, the answer is repeated at the end"


def test_a_row_below_a_baseline_has_a_note_in_place_of_a_place(store: Store) -> None:
    nocaps = printed(store).partition("scenes nocaps")[2]
    found = re.search(r"^transformer_base ×2 +— (\w)\) ", nocaps, re.MULTILINE)
    assert found
    assert re.search(r"^blind +baseline ", nocaps, re.MULTILINE)
    assert f"{found[1]}) not above a baseline: " in nocaps


def test_people_stand_above_models_that_are_scored_like_them(store: Store) -> None:
    text = printed(store)
    lines = text[text.index("as people, scenes test") :].splitlines()
    assert lines[1].split() == ["C", "B-4", "M", "R"]
    assert [line.split()[0] for line in lines[3:5]] == ["human", "expansionnet_v2"]
    assert "as people, scenes nocaps" not in text
    with store.writing() as connection:
        connection.execute(delete(HeldOutScore))
    assert "as people" not in printed(store)


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


@pytest.mark.parametrize("width", [80, 30])
def test_columns_of_pairs_are_numbered_digit_below_digit(width: int) -> None:
    count = 23
    cell = PairCell("B", "better", "")
    pairs = tuple((f"m{i}", tuple(None if i == j else cell for j in range(count))) for i in range(count))
    file = io.StringIO()
    print_pair_table(pairs, Console(file=file, width=width))
    tens, units, *lines = file.getvalue().splitlines()
    for number in range(1, count + 1):
        column = lines[number - 1].index("\\")  # where the row meets itself
        assert (tens.ljust(len(units))[column] + units[column]).strip() == str(number)
