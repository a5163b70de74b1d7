"""The parts of a stage of training: its data, objective, requirements of the model, and dropout."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from harness.config.schedule import Schedule, Stage
from harness.data.batches import CaptionBatches
from harness.data.dataset import Sample
from harness.data.vocabulary import Vocabulary
from harness.training.objectives import CrossEntropy, Objective
from harness.training.self_critical import CaptionRewards, ReinforceLoss, SelfCriticalLoss, require_states
from harness.training.sentence_graphs import SentenceGraphLoss, has_sentences, require_sentences
from harness.utils.errors import BenchError
from harness.utils.files import shortened
from zoo import Captioner, HasBackbone


@dataclass(frozen=True, slots=True)
class StageData:
    """The training data, objective and validation of a stage; `validate` returns a score of 0 or more."""

    train_batches: CaptionBatches
    objective: Objective
    validate: Callable[[], float]


def make_objective(
    stage: Stage,
    model: Captioner,
    samples: Sequence[Sample],
    vocabulary: Vocabulary,
    widths: Sequence[int] = (),
    note: Callable[[str], None] = lambda _: None,
) -> Objective:
    """The objective of a stage; BenchError if the model cannot be trained with it.

    Args:
        samples: the training images.
        widths: lengths to which sampled captions are padded for the second pass; if given, a CUDA graph draws them.
        note: called with the reason if a graph cannot draw captions.
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


def stages_for(model: Captioner, schedule: Schedule) -> Schedule:
    """The schedule without stages whose objective trains a part that the model does not have."""
    stages = tuple(stage for stage in schedule.stages if stage.gives_ciders or has_sentences(model))
    return schedule if stages == schedule.stages else schedule.model_copy(update={"stages": stages})


def validate_schedule(model: Captioner, schedule: Schedule) -> None:
    """Refuse a schedule that does not fit the model, before anything is trained.

    Raises:
        BenchError: a stage needs a part that the model lacks (a backbone, recurrent states, sentence graphs), scales a
            dropout to 1, or names an unknown parameter; or no stage trains a part of the model.
    """
    if has_sentences(model) and all(stage.gives_ciders for stage in schedule.stages):
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
        if not stage.gives_ciders:
            require_sentences(model, stage)


class DropoutRates:
    """The dropout rates of a model, and those that a stage sets.

    Args:
        model: as it was built; a backbone within it keeps its own rates in every stage.
    """

    def __init__(self, model: Captioner) -> None:
        self._model = model
        self._built_with = {module: module.p for module in model.modules() if isinstance(module, nn.Dropout)}

    def apply(self, stage: Stage) -> None:
        """Set the rates of a stage, and how masks are drawn.

        Without `dropout` and `dropout_scale`, the rates are those that the model was built with.
        """
        for module, built_with in self._built_with.items():
            module.p = built_with
        if stage.dropout is not None:
            self._model.set_dropout(stage.dropout)
        for module, rate in self.scaled(stage).items():
            module.p = rate
        for module in self._built_with:
            if type(module) in {nn.Dropout, PackedDropout}:  # in place: they have the same state
                module.__class__ = PackedDropout if stage.dropout_masks == "packed" else nn.Dropout

    def scaled(self, stage: Stage) -> dict[nn.Dropout, float]:
        """The rates of a stage with a `dropout_scale`; empty for a stage without.

        Raises:
            BenchError: a rate would be 1 or above.
        """
        if stage.dropout_scale is None:
            return {}
        captioner = self._model.body if isinstance(self._model, HasBackbone) else self._model
        rates = {}
        for name, module in captioner.named_modules():
            if isinstance(module, nn.Dropout):
                built_in = self._built_with[module]
                rate = rates[module] = stage.dropout_scale * built_in
                if rate >= 1:
                    raise BenchError(
                        f"stage {stage.name!r}: dropout_scale {stage.dropout_scale:g} makes a rate of {rate:g} from "
                        f"the model's own {built_in:g} ({name}); rates are below 1",
                        f"choose a dropout_scale below {1 / built_in:g}",
                    )
        return rates


class PackedDropout(nn.Dropout):
    """Dropout whose masks take four elements from one random number, on a CPU in float32; elsewhere it is torch's.

    Drawing is most of dropout's time on a CPU. Rates are rounded to multiples of 2^-16.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Drop elements at the rate p while training, and scale the others by 1 / (1 - p)."""
        packed = input.device.type == "cpu" and input.dtype == torch.float32
        if not packed or not self.training or self.p == 0.0:
            return super().forward(input)
        dropped: Tensor = _PackedDropout.apply(input, round(self.p * _STEPS))
        return dropped


_STEPS = 1 << 16


class _PackedDropout(torch.autograd.Function):
    """Dropout at a rate of `cut` / 2^16."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cut: int) -> Tensor:
        """Of the drawn 16-bit integers, which begin at -2^15, the first `cut` drop their element."""
        words = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(torch.iinfo(torch.int64).min, None)
        drawn = words.view(torch.int16)[: x.numel()].view(x.shape)
        mask = torch.ge(drawn, cut - _STEPS // 2, out=torch.empty(x.shape))
        mask *= _STEPS / (_STEPS - cut)
        ctx.save_for_backward(mask)
        return x * mask

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (mask,) = ctx.saved_tensors
        return gradient * mask, None
