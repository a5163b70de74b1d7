"""What a schedule asks of a model, checked before anything is trained."""

from __future__ import annotations

from harness.config.schedule import Schedule
from harness.training.reinforce import require_states
from harness.utils.errors import BenchError
from zoo import Captioner, HasBackbone


def validate_schedule(model: Captioner, schedule: Schedule) -> None:
    """Refuse a schedule that trains what the model has not.

    Raises:
        BenchError: a stage needs a backbone or recurrent states.
    """
    for stage in schedule.stages:
        if stage.backbone == "trained" and not isinstance(model, HasBackbone):
            raise BenchError(
                f"stage {stage.name!r} trains the backbone, but this model sees cached features",
                "choose a model on pixels, such as expansionnet_v2/end-to-end, or another schedule",
            )
        if stage.objective == "reinforce":
            require_states(model, stage)
