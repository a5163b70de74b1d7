"""The loss of a step and its gradient, in as many micro-batches as memory takes, on one device or several.

Losses are read from the device several steps at a time. Reading a number from a GPU waits until it has done all that it
was given, so that nothing is queued while the next step is prepared. A loss that is not finite is therefore noticed
some steps late, but with its own step's number, and before anything that followed from it is saved.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from harness.data.batches import Batch
from harness.inference.replay import Graphs, shapes_of
from harness.training.distributed import Collective
from harness.training.objectives import Objective
from harness.utils.errors import BenchError
from harness.utils.precision import autocast
from zoo import Captioner, Visual
from zoo.precision import no_autocast

STEPS_BETWEEN_READINGS = {"cpu": 1, "cuda": 20}  # the CPU has nothing to wait for, and reads at every step


class TrainingDivergedError(Exception):
    """The loss is no longer a number; the message names the step and the last good checkpoint."""


@dataclass(frozen=True, slots=True)
class StepLoss:
    """What a step gave: its number from 1 on, the loss of all ranks, the norm of summed gradients, and its rate."""

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


class UnreadLosses:
    """Losses that are still on the device; all ranks add and read them at the same steps."""

    def __init__(self, device: torch.device) -> None:
        self._every = STEPS_BETWEEN_READINGS[device.type]
        self._unread: list[tuple[int, Sequence[Tensor], Tensor, float]] = []

    @property
    def due(self) -> bool:
        """Whether the losses of enough steps have been added to read them."""
        return len(self._unread) >= self._every

    def add(self, step: int, losses: Sequence[Tensor], norm: Tensor, rate: float) -> None:
        """Add a step's losses: this rank's of its micro-batches, each a share of the whole batch's."""
        self._unread.append((step, losses, norm, rate))

    def read(self, collective: Collective) -> Iterator[StepLoss]:
        """Read the losses of all steps since the last reading, in order."""
        unread = self._unread
        self._unread = []
        if unread:
            steps, losses, norms, rates = zip(*unread, strict=True)
            flat = [loss for parts in losses for loss in parts]
            values = iter(torch.stack(flat).tolist() if flat else ())  # in one transfer from the device
            sums = collective.all_reduce_sum([sum((next(values) for _ in parts), 0.0) for parts in losses])
            yield from (
                StepLoss(*values_of_step)
                for values_of_step in zip(steps, sums, torch.stack(norms).tolist(), rates, strict=True)
            )


@contextmanager
def denormals_as_zero() -> Iterator[None]:
    """On the CPU, numbers below 1.2e-38 count as 0.

    Arithmetic with them is many times slower, and the softmax over a vocabulary, forward and backward, gives many.
    """
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


class ReplayedPasses:
    """The passes of a model over whole captions and their gradients, replayed as CUDA graphs.

    Results are those of the model's own passes, dropout included.
    """

    def __init__(self, model: Captioner, note: Callable[[str], None]) -> None:
        self._model = model
        self._plain = model.forward
        self._begun = False
        self._graphs = Graphs("passes", note)
        self.forget()

    def forget(self) -> None:
        """Drop all graphs, because dropout or the trained parameters change, or memory ran out."""
        self._graphs.forget()
        self._pool: Any = None

    @contextmanager
    def of_one_loss(self) -> Iterator[None]:
        """Within the block, the first call of the model is replayed; its gradients must come before the next loss."""
        self._begun = False
        self._model.forward = self  # type: ignore[method-assign]
        try:
            yield
        finally:
            del self._model.forward

    def __call__(self, visual: Visual, tokens: Tensor) -> Tensor:
        if self._begun or not torch.is_grad_enabled():
            return self._plain(visual, tokens)
        self._begun = True
        shapes = (self._model.training, *shapes_of(visual.parts() | {"tokens": tokens}))
        return self._graphs(shapes, self._plain, self._captured, visual, tokens)

    def _captured(self, visual: Visual, tokens: Tensor) -> Callable[[Visual, Tensor], Tensor]:
        """The pass and its gradient as CUDA graphs, for inputs of these shapes."""
        inputs = {name: part.clone() for name, part in visual.parts().items()}
        words = tokens.clone()
        learned = [weight for weight in self._model.parameters() if weight.requires_grad]
        forward_graph = torch.cuda.CUDAGraph()
        backward_graph = torch.cuda.CUDAGraph()
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        # Other threads read images meanwhile, and gradients are computed in one of their own.
        capture_options: dict[str, Any] = {"pool": self._pool, "capture_error_mode": "thread_local"}
        torch.clear_autocast_cache()  # so that the graph converts the current weights to half precision
        with torch.cuda.graph(forward_graph, **capture_options):
            logits = self._plain(Visual(**inputs), words)
        torch.clear_autocast_cache()
        output_gradient = torch.empty_like(logits)
        with no_autocast(logits), torch.cuda.graph(backward_graph, **capture_options):
            gradients = torch.autograd.grad(logits, learned, output_gradient, allow_unused=True)
        logits = logits.detach()

        def replay(visual: Visual, tokens: Tensor) -> Tensor:
            for name, part in visual.parts().items():
                inputs[name].copy_(part)
            words.copy_(tokens)
            output: Tensor = _Replayed.apply(
                (forward_graph, logits), (backward_graph, output_gradient, gradients), *learned
            )
            return output

        return replay


class _Replayed(torch.autograd.Function):
    """A replayed pass: the first graph computes the logits, the second the parameters' gradients from theirs."""

    @staticmethod
    def forward(ctx: Any, captured: tuple[Any, Tensor], backward: Any, *_: Tensor) -> Tensor:
        ctx.backward_pass = backward
        graph, logits = captured
        graph.replay()
        return logits.detach()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        graph, output_gradient, gradients = ctx.backward_pass
        output_gradient.copy_(gradient)
        graph.replay()
        return None, None, *(value if value is None else value.detach() for value in gradients)


class BatchGradient:
    """Adds the gradient of a batch to the parameters' gradients, in one or more passes.

    Micro-batches and the ranks' shares of a batch are weighted by what their losses are means over (words, images), so
    that their sum is the gradient of the whole batch. If memory runs out, this batch and all later ones are split into
    twice as many micro-batches.

    Args:
        note: called with the reason if passes cannot be replayed.
        replays: whether a GPU replays passes as graphs.

    Attributes:
        micro_batches: how many passes a batch takes at least, since memory ran out; 1 before.
    """

    def __init__(
        self,
        model: Captioner,
        device: torch.device,
        *,
        precision: str,
        collective: Collective,
        on_split: Callable[[int], None],
        note: Callable[[str], None] = lambda _: None,
        replays: bool = True,
    ) -> None:
        self._model = model
        self._device = device
        self._precision = precision
        self._collective = collective
        self._on_split = on_split
        self._passes = ReplayedPasses(model, note) if replays and device.type == "cuda" else None
        self.micro_batches = 1

    def begin_stage(self) -> None:
        """Prepare for another dropout and other trained parameters."""
        if self._passes is not None:
            self._passes.forget()

    def __call__(
        self,
        objective: Objective,
        parameters: Sequence[Parameter],
        batch: Batch,
        epoch: int,
        micro_batches: int,
        *,
        waits: bool = False,
    ) -> tuple[list[Tensor], int]:
        """This rank's shares of the loss, and the number of images over all ranks, in at least `micro_batches` passes.

        The shares are left on the device, one a pass; their sum over all ranks (`harness.training.losses`) is the loss.

        Args:
            waits: gradients of further batches are added before the optimiser's step.

        Raises:
            BenchError: out of memory with a single image.
        """
        own_weight = objective.weight(batch)
        weight, images = self._collective.all_reduce_sum([own_weight, len(batch.image_ids)])
        # Gradients of earlier batches are set aside, so that a pass that fails can be repeated.
        waiting = {parameter: parameter.grad for parameter in parameters if parameter.grad is not None}
        while True:
            for parameter in parameters:
                parameter.grad = None
            parts = max(micro_batches, self.micro_batches)
            losses = self._attempt(objective, parameters, batch, epoch, parts, own_weight, weight)
            if losses is not None:
                break
            self._split(batch, parts)
        self._collective.all_reduce_gradients(parameters)
        if waits:
            self._take_over(parameters)
        for parameter, gradient in waiting.items():
            parameter.grad = gradient if parameter.grad is None else gradient.add_(parameter.grad)
        return losses, int(images)

    def _attempt(
        self,
        objective: Objective,
        parameters: Sequence[Parameter],
        batch: Batch,
        epoch: int,
        micro_batches: int,
        own_weight: float,
        weight: float,
    ) -> list[Tensor] | None:
        """This rank's shares of the loss; None if memory ran out.

        `own_weight` is that of this rank's batch, `weight` that of all ranks' batches.
        """
        losses: list[Tensor] = []
        try:
            for micro_batch in batch.split(micro_batches) if batch.image_ids else ():
                if losses:
                    self._take_over(parameters)
                # Counted on the CPU: reading it from a GPU would wait for all queued work.
                share = (own_weight if micro_batch is batch else objective.weight(micro_batch)) / weight
                # Forward pass.
                replaying = nullcontext() if self._passes is None else self._passes.of_one_loss()
                with replaying, autocast(self._device, self._precision):
                    loss = objective(self._model, micro_batch.to(self._device), epoch)
                if share != 1.0:
                    loss = loss * share
                # Backward pass: gradients of the micro-batches add up.
                loss.backward()  # type: ignore[no-untyped-call]
                losses.append(loss.detach())
                del loss  # frees the autograd graph, which a capture of the next pass builds anew
        except torch.OutOfMemoryError:
            return None
        return losses

    def _take_over(self, parameters: Sequence[Parameter]) -> None:
        """Copy the gradients out of the memory that the next replayed pass overwrites."""
        if self._passes is None:
            return
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad = parameter.grad.clone()

    def _split(self, batch: Batch, micro_batches: int) -> None:
        images = len(batch.image_ids)
        if micro_batches >= images:
            raise BenchError(
                "out of memory with a single image at a time",
                "choose a smaller model or image size (--set size.d_model=..., --image-size), or --device cpu",
            )
        if self._passes is not None:
            self._passes.forget()
            torch.cuda.empty_cache()
        self.micro_batches = min(2 * micro_batches, images)
        self._on_split(self.micro_batches)
