"""Which runs are one training, only longer: those of a schedule under several budgets, and no others."""

from typing import Any

import pytest

from harness.config.load import PRESETS, load_preset
from results.runs.run import Run
from tests.reports.examples import run

SCHEDULES = sorted({name for name in PRESETS if not load_preset(name).recipe})


def trained(preset: str, budget: int, *changes: str) -> Run:
    schedule: Any = load_preset(preset, changes).schedule.times(budget)
    return run(preset={"schedule": {"budget": budget, **schedule.model_dump(mode="json")}})


@pytest.mark.parametrize("preset", SCHEDULES)
def test_budgets_of_a_schedule_are_one_series(preset: str) -> None:
    assert len({trained(preset, budget).budget_series for budget in (1, 2, 3, 7, 16)}) == 1


@pytest.mark.parametrize(
    "change",
    ["schedule.stages.0.learning_rate.peak=1e-7", "schedule.stages.0.batch_size=8", "schedule.stages.0.epochs=3"],
)
def test_other_settings_are_another_series(change: str) -> None:
    assert trained("quick", 2).budget_series != trained("quick", 2, change).budget_series
    assert trained("quick", 1).budget_series != trained("quick", 2, change).budget_series
