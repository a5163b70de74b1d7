"""What a stage of a schedule reads, and what it asks of the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from harness.config.schedule import Schedule
from harness.data.batches import CaptionBatches, VisualSource
from harness.training.dropout import DropoutRates
from harness.training.reinforce import require_states
from harness.training.sentence_graph import has_sentences, require_sentences
from harness.utils.errors import BenchError
from harness.utils.files import shortened
from zoo import Captioner, HasBackbone


@dataclass(frozen=True, slots=True)
class StageData:
    """A stage's training batches, and where its validation sees the images.

    `score` measures the validation of a stage that is not validated by decoding: more is better, and none is negative.
    """

    train_batches: CaptionBatches
    validation_source: VisualSource
    score: Callable[[], float] | None = None


def validate_schedule(model: Captioner, schedule: Schedule) -> None:
    """Refuse a schedule that does not fit the model, before anything is trained.

    Raises:
        BenchError: a stage needs a backbone, recurrent states or a part for sentence graphs that the model has not,
            scales a dropout to 1, or names a parameter that there is not; or no stage trains the model's part for
            sentence graphs.
    """
    if has_sentences(model) and not schedule.reads_sentences:
        raise BenchError(
            f"this model has a part for sentence graphs, which no stage of schedule {schedule.name!r} trains",
            "add --preset quick-sentences or sgae-paper, or choose the model without it, such as sgae",
        )
    rates = DropoutRates(model)
    for stage in schedule.stages:
        if stage.backbone == "trained" and not isinstance(model, HasBackbone):
            raise BenchError(
                f"stage {stage.name!r} trains the backbone, but this model sees cached features",
                "choose a model on pixels, such as expansionnet_v2/end-to-end, or another schedule",
            )
        rates.scaled(stage)
        if unknown := sorted(set(stage.constant_rates) - {name for name, _ in model.named_parameters()}):
            raise BenchError(
                f"stage {stage.name!r} has constant_rates for {shortened(', '.join(unknown))}: no such parameters",
                "leave it out, or name a parameter, such as dictionary of sgae",
            )
        if stage.objective == "reinforce":
            require_states(model, stage)
        if stage.objective == "sentence_graph":
            require_sentences(model, stage)


def stages_for(model: Captioner, schedule: Schedule) -> Schedule:
    """The schedule without its stages of sentence graphs, where the model has no part for them."""
    if has_sentences(model) or not schedule.reads_sentences:
        return schedule
    kept = tuple(stage for stage in schedule.stages if stage.objective != "sentence_graph")
    return schedule.model_copy(update={"stages": kept})
