"""Losses and gradient norms of steps, read from the device several steps at a time.

Reading a number from a GPU waits until it has done all that it was given, so that nothing is queued while the next step
is prepared. A loss that is not finite is therefore noticed some steps late, but with its own step's number, and before
anything that followed from it is saved.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from harness.training.distributed import Collective

STEPS_BETWEEN_READINGS = 20
"""On an accelerator; the CPU has nothing to wait for, and reads at every step."""


class TrainingDivergedError(Exception):
    """The loss is no longer a number; the message names the step and the last good checkpoint."""


@dataclass(frozen=True, slots=True)
class StepLoss:
    """What a step gave: its number from 1 on, the loss over all ranks, the norm of the summed gradients, and its rate.

    `rate` is the learning rate of the step.
    """

    step: int
    loss: float
    norm: float
    rate: float

    @property
    def finite(self) -> bool:
        """Whether both are numbers."""
        return math.isfinite(self.loss) and math.isfinite(self.norm)

    def __str__(self) -> str:
        return f"loss {self.loss}, gradient norm {self.norm} at step {self.step}"


def steps_between_readings(device: torch.device) -> int:
    """After how many steps losses are read."""
    return 1 if device.type == "cpu" else STEPS_BETWEEN_READINGS


class UnreadLosses:
    """Losses that are still on the device; all ranks add and read them at the same steps.

    Args:
        every: how many steps are kept at most.
    """

    def __init__(self, every: int) -> None:
        self._every = every
        self._steps: list[int] = []
        self._losses: list[Sequence[Tensor]] = []
        self._norms: list[Tensor] = []
        self._rates: list[float] = []

    @property
    def due(self) -> bool:
        """Whether so many are kept that they have to be read."""
        return len(self._steps) >= self._every

    def add(self, step: int, losses: Sequence[Tensor], norm: Tensor, rate: float) -> None:
        """Keep those of a step: this rank's losses of its micro-batches, each a share of the whole batch's."""
        self._steps.append(step)
        self._losses.append(losses)
        self._norms.append(norm)
        self._rates.append(rate)

    def read(self, collective: Collective) -> Iterator[StepLoss]:
        """Give those of all steps that were kept, first to last, and forget them."""
        steps, losses, norms, rates = self._steps, self._losses, self._norms, self._rates
        self._steps, self._losses, self._norms, self._rates = [], [], [], []
        if steps:
            found = zip(steps, read_losses(losses, collective), torch.stack(norms).tolist(), rates, strict=True)
            yield from (StepLoss(*each) for each in found)


def read_losses(losses: Sequence[Sequence[Tensor]], collective: Collective) -> list[float]:
    """The loss of each step over all micro-batches and ranks, in one transfer from the device."""
    flat = [loss for parts in losses for loss in parts]
    values = iter(torch.stack(flat).tolist() if flat else ())
    return collective.all_reduce_sum([sum((next(values) for _ in parts), 0.0) for parts in losses])
