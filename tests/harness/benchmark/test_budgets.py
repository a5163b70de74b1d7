"""`--budgets`: a ladder of trainings that share their trunks gives, bit for bit, what each gives alone."""

import sqlite3
from contextlib import closing
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import Any

import pytest

from harness.benchmark.identity.signature import schedule_field
from harness.config.load import load_preset
from harness.config.tuning import TunedValues, tuned_preset
from harness.training.trainer import TRUNK, Trainer
from harness.utils.errors import BenchError
from results import Store
from results.runs.reading import one_run
from tests.harness.benchmark.kills import learned
from tests.harness.conftest import TINY, bench, bench_or_raise, run_words

MODELS = "updown,transformer_base"
# 3 steps an epoch, so that the rate first falls in the middle of one; no score is known when the first trunk ends.
SETTINGS = TINY | {
    "schedule.stages.0.epochs": 3,
    "schedule.stages.0.batch_size": 10,
    "schedule.stages.0.validate_every": 2,
    "schedule.stages.0.dropout_scale": 0.5,
}
STEPS = {1: 9, 2: 18, 4: 36}
SHARED = {1: 0, 2: 3, 4: 9}  # steps of a budget that the one before it has trained


def words(data: Path, workspace: Path, budgets: str, models: str = MODELS) -> list[object]:
    shown = ("--backbone", "filterbank", "--jobs", 1, "--budgets", budgets)
    return [*run_words(data, workspace, models, SETTINGS), *shown]


def count_steps(monkeypatch: pytest.MonkeyPatch, kill_at: int | None = None) -> list[int]:
    """A list that has an element for each step that is executed; Ctrl-C comes at one of them."""
    steps, run_step = list[int](), Trainer._run_step

    def counted(*given: Any) -> None:
        steps.append(len(steps))
        if len(steps) == kill_at:
            raise KeyboardInterrupt
        run_step(*given)

    monkeypatch.setattr(Trainer, "_run_step", counted)
    return steps


@pytest.fixture(scope="module")
def alone(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace where each budget was trained by a command of its own, the largest one first."""
    workspace = tmp_path_factory.mktemp("alone")
    for budget in (4, 2, 1):
        assert bench_or_raise(*words(data, workspace, str(budget)))[0] == 0
    return workspace


def keys_of(workspace: Path) -> dict[tuple[str, int], str]:
    query = "SELECT model, coalesce(json_extract(config, '$.preset.schedule.budget'), 1), key FROM runs"
    with closing(sqlite3.connect(workspace / "bench.sqlite")) as store:
        return {(model, budget): key for model, budget, key in store.execute(query)}


def results_of(workspace: Path, of: tuple[str, int]) -> tuple[Any, ...]:
    return learned(workspace, keys_of(workspace)[of])


def test_a_ladder_gives_what_each_budget_gives_alone(
    data: Path, alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = count_steps(monkeypatch)
    output = bench_or_raise(*words(data, tmp_path, "1,2,4"))[1]
    assert len(steps) == 2 * sum(STEPS[budget] - SHARED[budget] for budget in STEPS)
    assert "updown budget 2" in output
    keys = keys_of(tmp_path)
    assert set(keys) == {(model, budget) for model in MODELS.split(",") for budget in STEPS}
    for model, budget in keys:
        found = results_of(tmp_path, (model, budget))
        assert found == results_of(alone, (model, budget))
        assert len(found[1]) == 3 * budget
        assert found[-1] == STEPS[budget], "those of the trunk are its own"
    with Store(tmp_path / "bench.sqlite", read_only=True) as store:
        for smaller, budget in pairwise(STEPS):
            run, before = (one_run(store, keys["updown", each]) for each in (budget, smaller))
            assert run.environment["first_stages_of"] == before.key
            shared = SHARED[budget] // 3
            assert [each.seconds for each in run.epochs[:shared]] == [each.seconds for each in before.epochs[:shared]]
    for folder in (tmp_path / "runs", alone / "runs"):
        assert not list(folder.glob(f"*/{TRUNK}")), "the next run takes it over, and the last one keeps none"


@pytest.mark.parametrize("kill_at", [4, 9 + 5, 9 + 15 + 8])
def test_a_ladder_goes_on_where_it_was_killed(
    data: Path, alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kill_at: int
) -> None:
    ladder = words(data, tmp_path, "1,2,4", "updown")
    with monkeypatch.context() as patch:
        count_steps(patch, kill_at)
        assert bench(*ladder).exit_code != 0
    steps = count_steps(monkeypatch)
    assert bench_or_raise(*ladder)[0] == 0
    assert kill_at + len(steps) <= 9 + 15 + 27 + 3, "an epoch at most is trained again"
    for budget in STEPS:
        assert results_of(tmp_path, ("updown", budget)) == results_of(alone, ("updown", budget))


def test_without_a_trunk_training_is_whole(
    data: Path, alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The smaller budget was no part of a ladder, or what it kept is damaged."""
    assert bench_or_raise(*words(data, tmp_path, "1", "updown"))[0] == 0
    assert not list((tmp_path / "runs").glob(f"*/{TRUNK}"))
    steps = count_steps(monkeypatch, 13)  # in the fifth epoch of budget 2, whose trunk ends with the third
    assert bench(*words(data, tmp_path, "2,4", "updown")).exit_code != 0
    [state] = (tmp_path / "runs").glob(f"*/{TRUNK}/*/state.pt")
    state.write_bytes(state.read_bytes()[:-9])
    assert bench_or_raise(*words(data, tmp_path, "2,4", "updown"))[0] == 0
    assert len(steps) == 18 + 1 + 36
    for budget in (2, 4):
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
        assert one.shared_epochs(other, steps) == first // steps


def _tuned(budget: int, warmup: float | None) -> Any:
    preset = load_preset("quick")
    longer = preset.model_copy(update={"schedule": preset.schedule.times(budget)})
    return tuned_preset(longer, TunedValues(warmup=warmup))


@pytest.mark.parametrize(
    ("preset", "change", "shared"),
    [
        ("quick", (), 4),
        ("quick", ("schedule.stages.0.learning_rate.annealing=cosine",), 0),
        ("quick", ("schedule.stages.0.learning_rate.annealing=constant",), 7),
        ("quick-scst", (), 0),
        ("updown-paper", ("stages=[xe]",), 3),
        ("updown-paper", ("stages=[xe]", "schedule.stages.0.scheduled_sampling.every=2"), 2),
    ],
)
def test_what_two_budgets_share(preset: str, change: tuple[str, ...], shared: int) -> None:
    schedule = load_preset(preset, change).schedule
    assert schedule.shared_epochs(schedule.times(2), 1500, 7500) == shared
    other = load_preset(preset, (*change, "schedule.stages.0.learning_rate.peak=0.5")).schedule
    assert other.shared_epochs(schedule.times(2), 1500, 7500) == 0


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


def test_a_plan_counts_what_budgets_share_once(data: Path, tmp_path: Path) -> None:
    told = bench_or_raise("plan", *words(data, tmp_path, "1,2,4", "blind,human")[1:], "--seeds", "2")[1]

    def lines(name: str) -> list[list[str]]:
        return [line.split() for line in told.splitlines() if line.startswith(name)]

    assert [line[1] for line in lines("blind")] == ["2", "2", "2"]
    assert [line[0] for line in lines("blind")] == ["blind", "blind*2", "blind*4"]
    assert [line[1] for line in lines("human")] == ["1"]
    assert [int(line[4]) for line in lines("stage")] == [9, 15, 27]
    assert "7 runs: models 1, seeds 2, budgets 1, 2, 4" in told
