"""What a stage of a schedule reads, and what it asks of the model."""

from __future__ import annotations

from dataclasses import dataclass

from harness.config.schedule import Schedule
from harness.data.batches import CaptionBatches, VisualSource
from harness.training.dropout import DropoutRates
from harness.training.reinforce import require_states
from harness.utils.errors import BenchError
from zoo import Captioner, HasBackbone


@dataclass(frozen=True, slots=True)
class StageData:
    """A stage's training batches, and where its validation sees the images."""

    train_batches: CaptionBatches
    validation_source: VisualSource


def validate_schedule(model: Captioner, schedule: Schedule) -> None:
    """Refuse a schedule that does not fit the model, before anything is trained.

    Raises:
        BenchError: a stage needs a backbone or recurrent states that the model has not, or scales a dropout to 1.
    """
    rates = DropoutRates(model)
    for stage in schedule.stages:
        if stage.backbone == "trained" and not isinstance(model, HasBackbone):
            raise BenchError(
                f"stage {stage.name!r} trains the backbone, but this model sees cached features",
                "choose a model on pixels, such as expansionnet_v2/end-to-end, or another schedule",
            )
        rates.scaled(stage)
        if stage.objective == "reinforce":
            require_states(model, stage)
