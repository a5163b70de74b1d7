"""Passes over whole captions, with their gradients, that a GPU replays as graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from harness.inference.replay import Graphs, shapes_of
from zoo import Captioner, Visual
from zoo.layers.looped import exactly


class ReplayedPasses:
    """The passes of a model over whole captions, replayed together with their gradients.

    They give what the passes themselves give, dropout included.
    """

    def __init__(self, model: Captioner, note: Callable[[str], None]) -> None:
        self._model, self._plain, self._begun = model, model.forward, False
        self._graphs = Graphs("passes", note)
        self.forget()

    def forget(self) -> None:
        """Capture anew: dropout or what is trained is about to change, or memory ran out."""
        self._graphs.forget()
        self._pool: Any = None

    @contextmanager
    def of_one_loss(self) -> Iterator[None]:
        """Within, calls of the model are replayed: the first of them, whose gradients come before the next loss."""
        self._begun = False
        self._model.forward = self  # type: ignore[method-assign]
        try:
            yield
        finally:
            del self._model.forward

    def __call__(self, visual: Visual, tokens: Tensor) -> Tensor:
        """See `Captioner.forward`."""
        if self._begun or not torch.is_grad_enabled():
            return self._plain(visual, tokens)
        self._begun = True
        shapes = (self._model.training, *shapes_of(visual.parts() | {"tokens": tokens}))
        return self._graphs(shapes, self._plain, self._captured, visual, tokens)

    def _captured(self, visual: Visual, tokens: Tensor) -> Callable[[Visual, Tensor], Tensor]:
        """The pass and its gradient as CUDA graphs, for inputs of these shapes."""
        own, words = {name: part.clone() for name, part in visual.parts().items()}, tokens.clone()
        learned = [weight for weight in self._model.parameters() if weight.requires_grad]
        there, back = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        # Other threads read images meanwhile, and gradients are computed in one of their own.
        how: dict[str, Any] = {"pool": self._pool, "capture_error_mode": "thread_local"}
        torch.clear_autocast_cache()  # weights in half precision are made within the graph, from what they are by then
        with torch.cuda.graph(there, **how):
            logits = self._plain(Visual(**own), words)
        torch.clear_autocast_cache()
        wanted = torch.empty_like(logits)
        with exactly(logits), torch.cuda.graph(back, **how):
            gradients = torch.autograd.grad(logits, learned, wanted, allow_unused=True)
        logits = logits.detach()

        def replay(visual: Visual, tokens: Tensor) -> Tensor:
            for name, part in visual.parts().items():
                own[name].copy_(part)
            words.copy_(tokens)
            found: Tensor = _Replayed.apply((there, logits), (back, wanted, gradients), *learned)
            return found

        return replay


class _Replayed(torch.autograd.Function):
    """What the first graph writes into its result; the second makes gradients of that of the result."""

    @staticmethod
    def forward(ctx: Any, there: tuple[Any, Tensor], back: Any, *_: Tensor) -> Tensor:
        ctx.back = back
        graph, logits = there
        graph.replay()
        return logits.detach()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        graph, wanted, gradients = ctx.back
        wanted.copy_(gradient)
        graph.replay()
        return None, None, *(each if each is None else each.detach() for each in gradients)
