"""Where training stands: what is shown of it, and what checkpoints of every release hold of it."""

from __future__ import annotations

from harness.config.schedule import Stage
from harness.training.state import TrainState, describe_progress

STAGE = Stage.model_validate({"name": "xe", "epochs": 3, "batch_size": 4, "learning_rate": {"peak": 0.1}})
STORED = {
    "stage": 1, "epoch": 2, "batch": 3, "step": 4, "total_steps": 5, "best": 0.6, "best_epoch": 1, "stale": 7,
    "loss_sum": 8.0, "epoch_seconds": 9.0, "epoch_images": 10, "seconds": 11.0, "images": 12, "waited": 13.0,
    "finished": False, "saves": 14, "reductions": 15, "level": 0.16, "stuck": 17, "before": 0.18, "latest": 0.19,
    "parts": 20,
}  # fmt: skip
"""As releases until now write it."""


def test_progress_shows_loss_validation_speed_and_time_left() -> None:
    state = TrainState(epoch=1, batch=5, loss_sum=10.0, epoch_seconds=20.0, epoch_images=100)
    assert describe_progress(state, STAGE, 10) == "loss 2.000, 5 images/s, stage: 1 min 0 s left"
    state.latest = 0.815
    assert describe_progress(state, STAGE, 10) == "loss 2.000, CIDEr-D 81.5, 5 images/s, stage: 1 min 0 s left"


def test_checkpoints_keep_the_field_names_of_older_releases() -> None:
    state = TrainState.from_checkpoint(STORED)
    found = (state.bad_epochs, state.data_wait_seconds, state.plateau_epochs, state.stage_start_score)
    assert found == (7, 13.0, 17, 0.18)
    assert state.micro_batches == 20
    assert state.to_checkpoint() == STORED


def test_a_checkpoint_with_fewer_fields_takes_defaults() -> None:
    state = TrainState.from_checkpoint({"stage": 1, "stale": 2})
    assert (state.stage, state.bad_epochs, state.micro_batches) == (1, 2, 1)
