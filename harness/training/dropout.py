"""A stage's dropout: one rate at every site of a model, or a factor of the rates that the model was built with."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from harness.config.schedule import Stage
from harness.utils.errors import BenchError
from zoo.captioner import Captioner, HasBackbone


class DropoutRates:
    """The rates that a model was built with, by site, and what a stage makes of them.

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
        self.restore()
        if stage.dropout is not None:
            self._model.set_dropout(stage.dropout)
        for module, rate in self.scaled(stage).items():
            module.p = rate
        if stage.dropout_masks == "packed":
            self._turn(nn.Dropout, PackedDropout)

    def restore(self) -> None:
        """Set every rate that the model was built with, and torch's way of drawing masks."""
        for module, built_with in self._built_with.items():
            module.p = built_with
        self._turn(PackedDropout, nn.Dropout)

    def _turn(self, before: type[nn.Dropout], after: type[nn.Dropout]) -> None:
        """Make all sites of one class those of another, in place: they have the same state."""
        for module in self._built_with:
            if type(module) is before:
                module.__class__ = after

    def scaled(self, stage: Stage) -> dict[nn.Dropout, float]:
        """The rates of a stage with a `dropout_scale`; none for a stage without.

        Raises:
            BenchError: a rate would be 1 or above, which leaves nothing of what it drops from.
        """
        if stage.dropout_scale is None:
            return {}
        captioner = self._model.body if isinstance(self._model, HasBackbone) else self._model
        found = {}
        for name, module in captioner.named_modules():
            if isinstance(module, nn.Dropout):
                found[module] = stage.dropout_scale * self._built_with[module]
                if found[module] >= 1:
                    raise BenchError(
                        f"stage {stage.name!r}: dropout_scale {stage.dropout_scale:g} makes a rate of "
                        f"{found[module]:g} from the model's own {self._built_with[module]:g} ({name}); rates are "
                        "below 1",
                        f"choose a dropout_scale below {1 / self._built_with[module]:g}",
                    )
        return found


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
        """The gradient of what was kept."""
        (mask,) = ctx.saved_tensors
        return gradient * mask, None
