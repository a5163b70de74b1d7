"""Speed by stage and time to a quality, from the epochs of a run."""

from __future__ import annotations

import pytest

from results.records import EpochRecord
from results.runs.training_time import seconds_to, stage_speeds


def _epoch(stage: int, name: str, epoch: int, cider: float | None, seconds: float, speed: float) -> EpochRecord:
    return EpochRecord(stage, name, "cross_entropy", epoch, 10, 0.1, 1.0, cider, seconds, speed)


EPOCHS = (
    _epoch(0, "xe", 0, None, 10.0, 100.0),
    _epoch(0, "xe", 1, 0.9, 30.0, 60.0),
    _epoch(1, "scst", 0, 0.8, 20.0, 5.0),
    _epoch(1, "scst", 1, 1.1, 25.0, 5.0),
)


def test_speed_of_a_stage_is_all_its_images_over_all_its_seconds() -> None:
    assert stage_speeds(EPOCHS) == {"xe": pytest.approx(70.0), "scst": pytest.approx(5.0)}
    assert stage_speeds(()) == {}


@pytest.mark.parametrize(("cider", "seconds"), [(0.85, 40.0), (0.9, 40.0), (1.0, 85.0), (1.2, None)])
def test_time_until_validation_first_reached_a_score(cider: float, seconds: float | None) -> None:
    assert seconds_to(EPOCHS, cider) == seconds
