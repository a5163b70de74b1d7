"""The gradient of a batch: in one pass or in as many parts as memory takes, by one process or several together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch.nn import Parameter

from harness.data.batches import Batch
from harness.training.objectives import Objective
from harness.training.processes import Processes
from harness.utils.errors import BenchError
from harness.utils.precision import autocast
from zoo import Captioner


class BatchGradient:
    """Adds the gradient of a batch to what the parameters hold, whatever number of passes it takes.

    Parts and shares of a batch are weighed by what their losses are means over (words, images), so that their sum is
    the gradient of the whole batch. Where memory runs out, the batch is begun again in twice as many parts, and so are
    all later ones.

    Attributes:
        parts: how many passes a batch takes at least, since memory ran out; 1 before.

    Args:
        precision: of `harness.utils.precision.autocast`.
        on_split: told the new number of parts.
    """

    def __init__(
        self,
        model: Captioner,
        device: torch.device,
        *,
        precision: str,
        processes: Processes,
        on_split: Callable[[int], None],
    ) -> None:
        self._model, self._device, self._precision = model, device, precision
        self._processes, self._on_split = processes, on_split
        self.parts = 1

    def __call__(
        self, objective: Objective, parameters: Sequence[Parameter], batch: Batch, epoch: int, parts: int
    ) -> tuple[float, int]:
        """The loss of the whole batch and its number of images, over all processes, in at least `parts` passes.

        Args:
            parameters: all that the objective depends on.

        Raises:
            BenchError: memory does not even take one image.
        """
        weight, images = self._processes.total([objective.weight(batch), len(batch.image_ids)])
        # What earlier batches left for the next step stays aside, so that a pass that fails can be begun again.
        waiting = {parameter: parameter.grad for parameter in parameters if parameter.grad is not None}
        while True:
            for parameter in parameters:
                parameter.grad = None
            value = self._attempt(objective, batch, epoch, max(parts, self.parts), weight)
            if value is not None:
                break
            self._split(batch, max(parts, self.parts))
        self._processes.add_gradients(parameters)
        for parameter, gradient in waiting.items():
            parameter.grad = gradient if parameter.grad is None else gradient.add_(parameter.grad)
        return self._processes.total([value])[0], int(images)

    def _attempt(self, objective: Objective, batch: Batch, epoch: int, parts: int, weight: float) -> float | None:
        """This process's share of the loss; None where memory did not suffice, with nothing left of the attempt."""
        value = 0.0
        try:
            for part in batch.split(parts) if batch.image_ids else ():
                share = objective.weight(part) / weight  # of a part on a GPU, all that is asked of it must be done
                with autocast(self._device, self._precision):
                    loss = objective(self._model, part.to(self._device), epoch)
                if share != 1.0:
                    loss = loss * share
                loss.backward()  # type: ignore[no-untyped-call]
                value += loss.item()
        except torch.OutOfMemoryError:
            return None
        return value

    def _split(self, batch: Batch, parts: int) -> None:
        images = len(batch.image_ids)
        if parts >= images:
            raise BenchError(
                "out of memory with a single image at a time",
                "choose a smaller model or image size (--set size.d_model=..., --image-size), or --device cpu",
            )
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
        self.parts = min(2 * parts, images)
        self._on_split(self.parts)
