"""Searches that a GPU replays as one graph: the host starts thousands of small kernels at once, not one by one."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import fields

import torch

from zoo import Visual
from zoo.decoding import Hypotheses

Search = Callable[[Visual], tuple[Hypotheses, ...]]
MOST = 8
"""Graphs of one search: each keeps the memory of its passes."""


class Replayed:
    """A search that a GPU captures the second time that images of the same shapes come, and replays from then on.

    It finds what the search itself does. Weights may change between its calls, in place.

    Args:
        search: reads nothing of the device (`to_the_end`). Where weights change, it calls the model's `eval` or `train`
            itself, so that layers compute what they keep of their weights within the graph.
    """

    def __init__(self, search: Search) -> None:
        self._search = search
        self._met: set[tuple[object, ...]] = set()
        self._kept: dict[tuple[object, ...], Search] = {}

    def __call__(self, visual: Visual) -> tuple[Hypotheses, ...]:
        """What is found in images that lie on the model's device."""
        shapes = tuple((name, part.shape, part.dtype) for name, part in visual.parts().items())
        if shapes not in self._kept:
            # The first time is eager: libraries set themselves up, and shapes that come once need no graph.
            if shapes not in self._met or len(self._kept) == MOST:
                self._met.add(shapes)
                return self._search(visual)
            self._kept[shapes] = captured(self._search, visual)
        return self._kept[shapes](visual)


def captured(search: Search, visual: Visual) -> Search:
    """The search as a CUDA graph, for images of these shapes."""
    own = {name: torch.empty_like(part) for name, part in visual.parts().items()}
    graph = torch.cuda.CUDAGraph()
    torch.clear_autocast_cache()  # weights in half precision are made within the graph, from what they are by then
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # other threads read images meanwhile
        found = search(Visual(**own))
    torch.clear_autocast_cache()

    def replay(visual: Visual) -> tuple[Hypotheses, ...]:
        for name, part in visual.parts().items():
            own[name].copy_(part)
        graph.replay()
        return tuple(Hypotheses(*(getattr(each, part.name).clone() for part in fields(Hypotheses))) for each in found)

    return replay


def waits_for(work: Callable[[], object]) -> list[str]:
    """Where work waits for the GPU, as files with lines; a graph cannot hold what does."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            work()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return [f"{each.filename}:{each.lineno}" for each in caught if "called a synchronizing" in str(each.message)]
