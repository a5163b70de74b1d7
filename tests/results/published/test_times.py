"""Printed training times of the paper track's presets."""

from __future__ import annotations

from harness.config.load import list_presets
from results.published import scores
from results.published.times import ROWS, training_times


def test_every_printed_time_of_a_recipe_is_found() -> None:
    timed = {name: len(training_times(name)) for name in list_presets() if training_times(name)}
    assert timed == {
        "aoanet-paper": 1,
        "expansionnet-v1-paper": 7,
        "expansionnet-v2-paper": 7,
        "expansionnet-v2-paper-frozen": 7,
        "noam-paper": 1,
        "x-transformer-paper": 1,
    }
    assert set(ROWS) == set(timed)
    left = {score.model for score in scores() if score.metric.startswith("train_time_")} - set(ROWS.values())
    assert left <= {"git", "ofa", "expansionnet_v1"}, "a printed time that no preset shows"


def test_hours_count_every_device() -> None:
    times = training_times("expansionnet-v1-paper")
    four = next(each for each in times if each.score.variant.endswith("proposed training strategy; 4 GPUs"))
    assert (four.score.value, four.device_hours) == (9, 36)
    last = training_times("expansionnet-v2-paper")[-1]
    assert (last.score.value, last.device_hours) == (2.5, 60)
