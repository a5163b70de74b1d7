"""Training passes that a GPU replays as graphs: the host starts thousands of small kernels at once, not one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from harness.inference.replay import MOST, attempted, tried
from zoo import Captioner, Visual
from zoo.layers.looped import exactly

SPARE = 2
"""How many times what was allocated at most has to be free for a capture: it keeps the memory of all its passes. A
model that takes more has kernels that are worth their start."""


class ReplayedPasses:
    """The passes of a model over whole captions, replayed together with their gradients.

    They give what the passes themselves give, dropout included. The first time that a shape comes it is worked through
    as it is, the second time it is captured.

    Args:
        note: told why passes are not replayed.
    """

    def __init__(self, model: Captioner, note: Callable[[str], None]) -> None:
        self._model, self._plain, self._note = model, model.forward, note
        self._refused = self._begun = False
        self.forget()

    def forget(self) -> None:
        """Capture anew: dropout or what is trained is about to change, or memory ran out."""
        self._met: set[object] = set()
        self._kept: dict[object, Callable[[Visual, Tensor], Tensor]] = {}
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
        if self._begun or self._refused or not torch.is_grad_enabled():
            return self._plain(visual, tokens)
        self._begun = True
        parts = visual.parts() | {"tokens": tokens}
        shapes = (self._model.training, *((name, part.shape, part.dtype) for name, part in parts.items()))
        if shapes in self._kept:
            return self._kept[shapes](visual, tokens)
        if shapes not in self._met:
            self._met.add(shapes)
            found, why = tried(lambda: self._plain(visual, tokens))
        elif len(self._kept) == MOST or not memory_suffices(tokens.device):
            return self._plain(visual, tokens)
        else:
            graphs, why = attempted(lambda: self._captured(visual, tokens))
            if graphs is not None:
                self._kept[shapes] = graphs
                return graphs(visual, tokens)
            found = self._plain(visual, tokens)
        if why:
            self._refused = True
            self._note(f"  passes are not replayed as graphs: {why}")
        return found

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

        def pass_there() -> Tensor:
            there.replay()
            return logits

        def pass_back(gradient: Tensor) -> tuple[Tensor | None, ...]:
            wanted.copy_(gradient)
            back.replay()
            return gradients

        def replay(visual: Visual, tokens: Tensor) -> Tensor:
            for name, part in visual.parts().items():
                own[name].copy_(part)
            words.copy_(tokens)
            return replayed(pass_there, pass_back, learned)

        return replay


def replayed(
    there: Callable[[], Tensor], back: Callable[[Tensor], tuple[Tensor | None, ...]], learned: list[torch.nn.Parameter]
) -> Tensor:
    """What `there` gives, as a function of the weights whose gradients `back` gives."""
    found: Tensor = _Replayed.apply(there, back, *learned)
    return found


class _Replayed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, there: Callable[[], Tensor], back: Any, *_: Tensor) -> Tensor:
        ctx.back = back
        return there().detach()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        return None, None, *(each if each is None else each.detach() for each in ctx.back(gradient))


def memory_suffices(device: torch.device) -> bool:
    """Whether a capture leaves enough for what is not captured."""
    return SPARE * torch.cuda.max_memory_allocated(device) < torch.cuda.mem_get_info(device)[0]
