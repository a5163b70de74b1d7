"""The last screen of `bench run`: 23 lines of 80 columns, the answer first, and a command that can be pasted."""

import io
import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console
from sqlalchemy import delete, func, select, update

from reports.text.summary import NextCommand, Summary
from results.store.schema import RunRow
from results.store.store import Store

BASELINES = Path(__file__).parents[3] / "baselines"
WORDS = ["run", "--models", "all", "--seeds=2"]


def last_screen(
    store: Store, keys: list[str] | None = None, words: list[str] = WORDS, location: Sequence[str] = ()
) -> list[str]:
    with store.reading() as connection:
        runs = list(connection.execute(RunRow.__table__.select()).mappings())
    ended = {run["key"]: run["status"] for run in runs if keys is None or run["key"] in keys}
    summary = Summary.read(store, list(ended), location)
    file = io.StringIO()
    page = Path("workspace/report/index.html")
    summary.print(Console(file=file, width=80), ended, 706.0, page, summary.next_command(words))
    return file.getvalue().splitlines()


def value_of(lines: list[str], label: str) -> str:
    [line] = [line for line in lines if line.startswith(f"{label} ")]
    return line.removeprefix(label).strip()


@pytest.mark.parametrize("name", ["scenes", "flickr8k", "flickr8k_rewards", "coco_released"])
def test_the_largest_table_is_on_one_screen(name: str) -> None:
    with Store(BASELINES / f"{name}.sqlite", read_only=True) as store:
        lines = last_screen(store)
    assert len(lines) <= 23
    assert max(map(len, lines)) <= 80
    best = lines[2].split(" scores highest")[0]
    row = next(line for line in lines[3:] if best in line)
    assert row.split()[0].split("–")[0] == "1", "the best row is the first, with its rank"
    assert value_of(lines, "report") == "workspace/report/index.html"


def test_suggested_commands_name_the_results() -> None:
    with Store(BASELINES / "coco_released.sqlite", read_only=True) as store:
        lines = last_screen(store, location=["--workspace", "my runs"])
    assert value_of(lines, "tables").startswith("bench report --terminal --workspace 'my runs' ")
    assert lines[-1] == "bench report --open --workspace 'my runs'"


def test_the_headline_counts_the_other_models() -> None:
    with Store(BASELINES / "flickr8k_rewards.sqlite", read_only=True) as store:
        text = " ".join(last_screen(store))
    assert "transformer_base scores highest, 61.6 CIDEr-D" in text
    assert "significantly better than 8 models; too close to " in text


def test_failures_are_named_and_the_same_command_is_next(store: Store) -> None:
    lines = last_screen(store)
    assert len(lines) <= 23
    assert any(line.startswith("failed ") for line in lines)
    assert value_of(lines, "next").startswith(f"bench {shlex.join(WORDS)} ")


def test_one_seed_asks_for_three(store: Store) -> None:
    with store.writing() as connection:
        connection.execute(delete(RunRow).where(RunRow.status != "finished"))
        seed = connection.scalar(select(func.min(RunRow.seed)).where(RunRow.role == "model"))
        connection.execute(delete(RunRow).where(RunRow.seed != seed))
    lines = last_screen(store)
    assert "bench run --models all --seeds 3" in value_of(lines, "next"), "in place of the two that were asked for"


def test_hostile_names_are_shown_and_not_obeyed(store: Store) -> None:
    with store.writing() as connection:
        connection.execute(update(RunRow).where(RunRow.model == "expansionnet_v2").values(model="a\x1b[31mb\rc"))
    text = "\n".join(last_screen(store))
    assert "a\ufffd[31mb\ufffdc" in text
    assert "\x1b" not in text


def test_nothing_finished(store: Store) -> None:
    with store.writing() as connection:
        connection.execute(delete(RunRow).where(RunRow.status == "finished"))
    lines = last_screen(store)
    assert lines[0] == "No run has finished yet."
    assert any(line.startswith("failed ") for line in lines)


def test_long_commands_break_between_words_as_a_shell_takes_them() -> None:
    words = ["run", "--models", "updown,transformer_base,expansionnet_v2", "--data", "my photographs/dataset.json"]
    lines = NextCommand.of([*words, "--seeds", "3"], "three seeds", "--seeds 3").lines(60)
    assert lines[0] == "next    three seeds:"
    assert max(map(len, lines)) <= 60
    assert shlex.split("\n".join(lines[1:]).replace(" \\\n", " ")) == ["bench", *words, "--seeds", "3"]
    longer = NextCommand.of([*words, *["--set", "size.d_model=16"] * 9], "three seeds", "--seeds 3").lines(60)
    assert longer == ["next    the same command with --seeds 3    three seeds"]
