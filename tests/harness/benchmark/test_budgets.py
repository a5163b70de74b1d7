"""`--budgets`: every training of a ladder is whole, and goes on where it was killed."""

import sqlite3
from contextlib import closing
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import Any

import pytest

from harness.benchmark.signature import schedule_field
from harness.config.load import load_preset
from harness.config.tuning import TunedValues, tuned_preset
from harness.training.trainer import Trainer
from harness.utils.errors import BenchError
from tests.harness.benchmark.kills import learned
from tests.harness.conftest import TINY, bench, bench_or_raise, run_words

MODELS = "updown,transformer_base"
SETTINGS = TINY | {
    "schedule.stages.0.epochs": 3,
    "schedule.stages.0.batch_size": 10,
    "schedule.stages.0.validate_every": 2,
    "schedule.stages.0.dropout_scale": 0.5,
}
STEPS = {1: 9, 2: 18, 4: 36}


def words(data: Path, workspace: Path, budgets: str, models: str = MODELS) -> list[object]:
    shown = ("--backbone", "filterbank", "--jobs", 1, "--budgets", budgets)
    return [*run_words(data, workspace, models, SETTINGS), *shown]


def count_steps(monkeypatch: pytest.MonkeyPatch, kill_at: int | None = None) -> list[int]:
    """A list that has an element for each step that is executed; Ctrl-C comes at one of them."""
    steps, run_step = list[int](), Trainer._train_batch

    def counted(*given: Any) -> None:
        steps.append(len(steps))
        if len(steps) == kill_at:
            raise KeyboardInterrupt
        run_step(*given)

    monkeypatch.setattr(Trainer, "_train_batch", counted)
    return steps


@pytest.fixture(scope="module")
def alone(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace where each budget was trained by a command of its own, the largest one first."""
    workspace = tmp_path_factory.mktemp("alone")
    for budget in (4, 2, 1):
        assert bench_or_raise(*words(data, workspace, str(budget)))[0] == 0
    return workspace


def keys_of(workspace: Path) -> dict[tuple[str, int], str]:
    query = "SELECT model, coalesce(json_extract(config, '$.made_from.budget'), 1), key FROM runs"
    with closing(sqlite3.connect(workspace / "bench.sqlite")) as store:
        return {(model, budget): key for model, budget, key in store.execute(query)}


def results_of(workspace: Path, of: tuple[str, int]) -> tuple[Any, ...]:
    return learned(workspace, keys_of(workspace)[of])


def test_each_budget_of_a_ladder_is_trained_whole(
    data: Path, alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = count_steps(monkeypatch)
    output = bench_or_raise(*words(data, tmp_path, "1,2,4"))[1]
    assert len(steps) == 2 * sum(STEPS.values())
    assert "updown budget 2" in output
    keys = keys_of(tmp_path)
    assert set(keys) == {(model, budget) for model in MODELS.split(",") for budget in STEPS}
    for model, budget in keys:
        assert results_of(tmp_path, (model, budget)) == results_of(alone, (model, budget))


@pytest.mark.parametrize("kill_at", [4, 9 + 5, 9 + 18 + 8])
def test_a_ladder_goes_on_where_it_was_killed(
    data: Path, alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kill_at: int
) -> None:
    ladder = words(data, tmp_path, "1,2,4", "updown")
    with monkeypatch.context() as patch:
        count_steps(patch, kill_at)
        assert bench(*ladder).exit_code != 0
    steps = count_steps(monkeypatch)
    assert bench_or_raise(*ladder)[0] == 0
    assert kill_at + len(steps) <= sum(STEPS.values()) + 3, "an epoch at most is trained again"
    for budget in STEPS:
        assert results_of(tmp_path, ("updown", budget)) == results_of(alone, ("updown", budget))


@pytest.mark.parametrize("warmup", [None, 0.0, 0.1234, 0.3])
def test_budgets_have_the_same_rates_up_to_the_first_decay(warmup: float | None) -> None:
    steps = 63
    for shorter, longer in pairwise((1, 2, 3, 4, 8, 64)):
        one, other = (_tuned(budget, warmup).schedule.stages[0] for budget in (shorter, longer))
        rates = [
            [stage.learning_rate.at(step, steps, stage.epochs * steps) for step in range(one.epochs * steps)]
            for stage in (one, other)
        ]
        first = next(step for step, pair in enumerate(zip(*rates, strict=True)) if pair[0] != pair[1])
        assert first == ceil(0.5425 * len(rates[0])), "where the first of the decays ends the constant rate"


def _tuned(budget: int, warmup: float | None) -> Any:
    preset = load_preset("quick")
    longer = preset.model_copy(update={"schedule": preset.schedule.times(budget)})
    return tuned_preset(longer, TunedValues(warmup=warmup))


def test_a_budget_of_one_is_no_other_schedule() -> None:
    schedule = load_preset("quick").schedule
    assert schedule.times(1) == schedule
    assert "budget" not in schedule.model_dump(mode="json")
    assert schedule.times(2).model_dump(mode="json")["budget"] == 2
    assert schedule_field(schedule).startswith("quick#")
    assert schedule_field(schedule.times(2)).startswith("quick*2#")
    with pytest.raises(BenchError, match="--set"):
        load_preset("quick", ("schedule.budget=2",))


@pytest.mark.parametrize("command", ["run", "plan"])
@pytest.mark.parametrize("budgets", ["0", "2,1", "1,1", "a", "", "1,", "-1", "1.5", "1000000", "9" * 5000])
def test_what_is_no_ladder_is_refused(command: str, budgets: str, tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="--budgets") as refused:
        bench_or_raise(command, "--budgets", budgets, "--workspace", tmp_path / "workspace")
    assert ("--budgets 1,2,4" if budgets else "give it a value") in (refused.value.hint or "")


def test_a_budget_is_of_one_stage(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="has 2 stages"):
        bench_or_raise("run", "--preset", "quick-scst", "--budgets", "2", "--workspace", tmp_path / "workspace")


def test_a_plan_counts_each_budget_whole(data: Path, tmp_path: Path) -> None:
    told = bench_or_raise("plan", *words(data, tmp_path, "1,2,4", "blind,human")[1:], "--seeds", "2")[1]

    def lines(name: str) -> list[list[str]]:
        return [line.split() for line in told.splitlines() if line.startswith(name)]

    assert [line[1] for line in lines("blind")] == ["2", "2", "2"]
    assert [line[0] for line in lines("blind")] == ["blind", "blind*2", "blind*4"]
    assert [line[1] for line in lines("human")] == ["1"]
    assert [int(line[4]) for line in lines("stage")] == [9, 18, 36]
    assert "7 runs: models 1, seeds 2, budgets 1, 2, 4" in told
