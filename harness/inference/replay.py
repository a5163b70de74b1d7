"""Replay work as CUDA graphs, with which the host launches thousands of small kernels at once."""

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
"""Maximum number of graphs."""
SPARE = 2  # a capture needs this multiple of the peak memory to be free


class Graphs:
    """Captures work as a CUDA graph when inputs of the same shapes come for the second time, and then replays it.

    Args:
        title: name of the work in the plural, for `note`.
        note: called with the reason if the work cannot be replayed, for example since it waits for the device.
    """

    def __init__(self, title: str, note: Callable[[str], None]) -> None:
        self._what = title
        self._note = note
        self._refused = False
        self.forget()

    def forget(self) -> None:
        """Drop all graphs, because tensors that they use will be replaced."""
        self._met: set[object] = set()
        self._kept: dict[object, Any] = {}

    def __call__(
        self, shapes: object, work: Callable[..., T], capture: Callable[..., Callable[..., T]], *arguments: Any
    ) -> T:
        """The result of `work` on `arguments`, from a graph of these shapes where there is one.

        Args:
            capture: captures the work as a graph; returns a function that replays it.
        """
        if shapes in self._kept:
            result: T = self._kept[shapes](*arguments)
            return result
        if shapes not in self._met and not self._refused:
            # The first run initialises libraries, and shapes that come only once need no graph.
            self._met.add(shapes)
            result, reason = run_checking_capture(lambda: work(*arguments))
        elif self._refused or len(self._kept) == MOST or not memory_suffices():
            return work(*arguments)
        else:
            graph, reason = try_capture(lambda: capture(*arguments))
            if graph is not None:
                self._kept[shapes] = graph
                return graph(*arguments)
            result = work(*arguments)
        if reason:
            self._refused = True
            self._note(f"  {self._what} are not replayed as graphs: {reason}")
        return result


class Replayed:
    """A search that is replayed as a CUDA graph, with the same results. Weights may change in place between calls.

    Args:
        search: must not read from the device (`early_stop=False`). If weights change, it must call the model's `eval`
            or `train` itself, so that tensors that layers derive from weights are computed within the graph.
    """

    def __init__(self, search: Search, note: Callable[[str], None]) -> None:
        self._search = search
        self._graphs = Graphs("searches", note)

    def __call__(self, visual: Visual) -> tuple[Hypotheses, ...]:
        """The search's result for images on the model's device."""
        return self._graphs(shapes_of(visual.parts()), self._search, partial(captured, self._search), visual)


def shapes_of(parts: Mapping[str, Tensor]) -> tuple[object, ...]:
    """Shapes and types of tensors, by name."""
    return tuple((name, part.shape, part.dtype) for name, part in parts.items())


def memory_suffices() -> bool:
    """Whether enough memory is free for a capture, which keeps all the memory that its work allocates.

    Work with larger tensors gains little from graphs, since its kernels take longer than their launch.
    """
    return SPARE * torch.cuda.max_memory_allocated() < torch.cuda.mem_get_info()[0]


def captured(search: Search, visual: Visual) -> Search:
    """Capture the search as a CUDA graph for images of these shapes; return a function that replays it."""
    inputs = {name: torch.empty_like(part) for name, part in visual.parts().items()}
    graph = torch.cuda.CUDAGraph()
    torch.clear_autocast_cache()  # so that half-precision weights are computed within the graph, at every replay
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # other threads may read images
        outputs = search(Visual(**inputs))
    torch.clear_autocast_cache()

    def replay(visual: Visual) -> tuple[Hypotheses, ...]:
        for name, part in visual.parts().items():
            inputs[name].copy_(part)
        graph.replay()
        return tuple(
            Hypotheses(*(getattr(hypotheses, part.name).clone() for part in fields(Hypotheses)))
            for hypotheses in outputs
        )

    return replay


def run_checking_capture(work: Callable[[], T]) -> tuple[T, str]:
    """Run once; return the result and, if the work cannot be captured as a graph, the reason, else ""."""
    results = list[T]()
    generators_before = cpu_generator_states()
    if waits := synchronisation_points(lambda: results.append(work())):
        return results[0], f"it waits for the device at {waits[0]}"
    return results[0], "" if cpu_generator_states() == generators_before else "it draws random numbers on the processor"


def synchronisation_points(work: Callable[[], object]) -> list[str]:
    """Run work, and return the files and lines at which it waits for the GPU."""
    places = list[str]()
    this_thread = threading.get_ident()

    def record(message: Warning | str, _: type[Warning], file: str, line: int, *__: object) -> None:
        if (
            "called a synchronizing" in str(message) and threading.get_ident() == this_thread
        ):  # others write checkpoints
            places.append(f"{file}:{line}")

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = record  # type: ignore[assignment]
        torch.cuda.set_sync_debug_mode("warn")
        try:
            work()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return places


def cpu_generator_states() -> object:
    """The states of the random number generators on the CPU."""
    return random.getstate(), str(np.random.get_state(legacy=False)), torch.get_rng_state().numpy().tobytes()


def try_capture(capture: Callable[[], T]) -> tuple[T | None, str]:
    """The captured graph; None if capture fails, with the reason, which leaves everything usable."""
    stream = torch.cuda.current_stream()
    try:
        return capture(), ""
    except RuntimeError as error:  # out of memory too
        torch.cuda.set_stream(stream)  # a failed capture does not restore it
        return None, str(error.__context__ or error).partition("\n")[0] or type(error).__name__
