"""What a stage of a schedule reads, what it makes smaller, and what it asks of the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.config.schedule import Schedule, Stage
from harness.data.batches import CaptionBatches
from harness.data.dataset import Sample
from harness.data.vocabulary import Vocabulary
from harness.training.dropout import DropoutRates
from harness.training.objectives import CrossEntropy, Objective
from harness.training.reinforce import ReinforceLoss, require_states
from harness.training.self_critical import CaptionRewards, SelfCriticalLoss
from harness.training.sentence_graphs import SentenceGraphLoss, check_schedule
from harness.utils.errors import BenchError
from harness.utils.files import shortened
from zoo import Captioner, HasBackbone


@dataclass(frozen=True, slots=True)
class StageData:
    """What a stage trains on, what it makes smaller, and its validation: more is better, and none is negative."""

    train_batches: CaptionBatches
    objective: Objective
    validate: Callable[[], float]
    """Called on rank 0 alone."""


def make_objective(
    stage: Stage,
    model: Captioner,
    samples: Sequence[Sample],
    vocabulary: Vocabulary,
    widths: Sequence[int] = (),
    note: Callable[[str], None] = lambda _: None,
) -> Objective:
    """What a stage makes smaller, on these training images; BenchError where the model is of the wrong kind.

    Args:
        widths: to which sampled captions are padded for the pass that is differentiated; a graph draws them then.
        note: told why captions are not drawn by a graph.
    """
    if stage.objective == "self_critical":
        settings = stage.self_critical
        rewards = CaptionRewards(samples, vocabulary, settings.end_in_reward, settings.documents)
        return SelfCriticalLoss(stage, vocabulary, rewards, widths, note)
    if stage.objective == "reinforce":
        rewards = CaptionRewards(samples, vocabulary, stage.reinforce.end_in_reward)
        return ReinforceLoss(stage, vocabulary, rewards, require_states(model, stage).d_model)
    if stage.objective == "sentence_graph":
        return SentenceGraphLoss(stage, vocabulary.pad)
    return CrossEntropy(stage, vocabulary.pad)


def validate_schedule(model: Captioner, schedule: Schedule) -> None:
    """Refuse a schedule that does not fit the model, before anything is trained.

    Raises:
        BenchError: a stage needs a part that the model has not (a backbone, recurrent states, sentence graphs), scales
            a dropout to 1, or names a parameter that there is not; or no stage trains a part.
    """
    check_schedule(model, schedule)
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
