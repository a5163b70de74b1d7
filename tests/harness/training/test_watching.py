"""What training says while it goes on."""

from __future__ import annotations

from harness.config.schedule import Stage
from harness.training.state import TrainState
from harness.training.watching import describe_progress

STAGE = Stage.model_validate({"name": "xe", "epochs": 3, "batch_size": 4, "learning_rate": {"peak": 0.1}})


def test_progress_tells_loss_validation_speed_and_the_time_left_of_the_stage() -> None:
    at = TrainState(epoch=1, batch=5, loss_sum=10.0, epoch_seconds=20.0, epoch_images=100)
    assert describe_progress(at, STAGE, 10) == "loss 2.000, 5 images/s, stage: 1 min 0 s left"
    at.latest = 0.815
    assert describe_progress(at, STAGE, 10) == "loss 2.000, CIDEr-D 81.5, 5 images/s, stage: 1 min 0 s left"
