"""What a training run says of itself while it goes on."""

from __future__ import annotations

import math

from harness.config.schedule import Stage
from harness.training.state import TrainState
from harness.utils.progress import describe_seconds


def describe_progress(at: TrainState, stage: Stage, batches: int) -> str:
    """The epoch's mean loss, the last validation, the speed, and how long the stage still takes without validations.

    Args:
        at: after at least one batch of the epoch.
        batches: of an epoch.
    """
    cider = "" if at.latest == -math.inf else f", CIDEr-D {100 * at.latest:.1f}"
    seconds = max(at.epoch_seconds, 1e-9)
    left = (stage.epochs - at.epoch) * batches - at.batch
    time_left = describe_seconds(seconds / at.batch * left)
    speed = f"{at.epoch_images / seconds:.0f} images/s"
    return f"loss {at.loss_sum / at.batch:.3f}{cider}, {speed}, stage: {time_left} left"


def warn_if_worse(at: TrainState, stage: Stage, cider: float) -> str | None:
    """A warning where self-critical training has lowered what it was validated by before; None where it has not."""
    if stage.objective == "cross_entropy" or cider >= at.before:
        return None
    drop = f"  validation CIDEr-D {100 * cider:.1f} is {100 * (at.before - cider):.1f} below where {stage.name} began"
    if at.epoch + 1 < stage.epochs:
        return f"{drop}; the likeliest captions follow the sampled ones late, so the first epochs may fall"
    if at.best >= at.before:
        return f"{drop}; the best epoch, which is kept, is above"
    return f"{drop}, and so is its best epoch: give the stage more epochs, or another learning rate"
