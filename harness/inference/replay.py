"""Work that a GPU replays as graphs: the host starts thousands of small kernels at once, not one by one."""

import random
import threading
import warnings
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from zoo import Visual
from zoo.decoding import Hypotheses

T = TypeVar("T")
Search = Callable[[Visual], tuple[Hypotheses, ...]]
MOST = 8
SPARE = 2  # how many times what was allocated at most has to be free for a capture


class Graphs:
    """Work that a GPU captures the second time that inputs of the same shapes come, and replays from then on.

    Args:
        what: its name in the plural, for `note`.
        note: told why it is not replayed, as where a model reads the device.
    """

    def __init__(self, what: str, note: Callable[[str], None]) -> None:
        self._what, self._note, self._refused = what, note, False
        self.forget()

    def forget(self) -> None:
        """Begin anew, for what a graph holds is about to change."""
        self._met: set[object] = set()
        self._kept: dict[object, Any] = {}

    def __call__(
        self, shapes: object, plain: Callable[..., T], capture: Callable[..., Callable[..., T]], *given: Any
    ) -> T:
        """What `plain` makes of what is given, by way of a graph of these shapes where there is one."""
        if shapes in self._kept:
            found: T = self._kept[shapes](*given)
            return found
        if shapes not in self._met and not self._refused:
            # Libraries set themselves up, and shapes that come once need no graph.
            self._met.add(shapes)
            found, why = tried(lambda: plain(*given))
        elif self._refused or len(self._kept) == MOST or not memory_suffices():
            return plain(*given)
        else:
            graph, why = attempted(lambda: capture(*given))
            if graph is not None:
                self._kept[shapes] = graph
                return graph(*given)
            found = plain(*given)
        if why:
            self._refused = True
            self._note(f"  {self._what} are not replayed as graphs: {why}")
        return found


class Replayed:
    """A search that is replayed; it finds what the search itself does. Weights may change between its calls, in place.

    Args:
        search: reads nothing of the device (`early_stop=False`). Where weights change, it calls the model's `eval` or
            `train` itself, so that layers compute what they keep of their weights within the graph.
    """

    def __init__(self, search: Search, note: Callable[[str], None]) -> None:
        self._search, self._graphs = search, Graphs("searches", note)

    def __call__(self, visual: Visual) -> tuple[Hypotheses, ...]:
        """What is found in images that lie on the model's device."""
        return self._graphs(shapes_of(visual.parts()), self._search, partial(captured, self._search), visual)


def shapes_of(parts: Mapping[str, Tensor]) -> tuple[object, ...]:
    """Shapes and types of tensors, by name."""
    return tuple((name, part.shape, part.dtype) for name, part in parts.items())


def memory_suffices() -> bool:
    """Whether a capture, which keeps the memory of all its passes, leaves enough for what is not captured.

    What takes more has kernels that are worth their start.
    """
    return SPARE * torch.cuda.max_memory_allocated() < torch.cuda.mem_get_info()[0]


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


def tried(work: Callable[[], T]) -> tuple[T, str]:
    """What work gives, and why a graph would not give it again; "" where nothing is in the way."""
    found, before = list[T](), numbers_of_the_processor()
    if waits := waits_for(lambda: found.append(work())):
        return found[0], f"it waits for the device at {waits[0]}"
    return found[0], "" if numbers_of_the_processor() == before else "it draws random numbers on the processor"


def waits_for(work: Callable[[], object]) -> list[str]:
    """Where work waits for the GPU, as files with lines."""
    places, mine = list[str](), threading.get_ident()

    def told(message: Warning | str, _: type[Warning], file: str, line: int, *__: object) -> None:
        if "called a synchronizing" in str(message) and threading.get_ident() == mine:  # others write checkpoints
            places.append(f"{file}:{line}")

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = told  # type: ignore[assignment]
        torch.cuda.set_sync_debug_mode("warn")
        try:
            work()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return places


def numbers_of_the_processor() -> object:
    """Where the processor's generators of random numbers stand."""
    return random.getstate(), str(np.random.get_state(legacy=False)), torch.get_rng_state().numpy().tobytes()


def attempted(capture: Callable[[], T]) -> tuple[T | None, str]:
    """What is captured; None where that is not possible, and why. All goes on without."""
    stream = torch.cuda.current_stream()
    try:
        return capture(), ""
    except RuntimeError as error:  # out of memory too
        torch.cuda.set_stream(stream)  # which a capture that fails does not put back
        return None, str(error.__context__ or error).partition("\n")[0] or type(error).__name__
