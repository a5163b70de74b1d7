"""How long one caption takes, and how many images a second that makes, on a named number of threads."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from harness.errors import BenchError
from harness.measure.evaluating import evaluating
from results.records import Quantity
from zoo.captioner import Captioner, Visual
from zoo.decoding import beam_search


def measure_latency(
    model: Captioner,
    visual: Visual,
    *,
    beam_size: int,
    max_len: int,
    bos: int = 1,
    eos: int = 2,
    repeats: int = 7,
    warmup: int = 1,
    budget_s: float = 2.0,
    threads: int | None = None,
) -> dict[str, Quantity]:
    """Time encoding and beam search of one batch, from features on the model's device to finished tokens.

    Args:
        model: left as it was found, training flags included.
        visual: the batch; batch 1 gives the latency of a single image.
        beam_size: 1 is greedy.
        max_len: tokens generated at most; captions that end early take less time, as in use.
        repeats: timed runs at most.
        warmup: untimed runs before them.
        budget_s: no further run begins once this many seconds have passed; two timed runs are always made.
        threads: torch's intra-op threads meanwhile; None keeps the current number. Reported either way.

    Returns:
        `latency_median` and `latency_iqr` (seconds a batch, inter-quartile range), `latency_throughput` (images/s at
        the median), `latency_batch`, `latency_threads` and `latency_repeats` (timed runs made).
    """
    if repeats < 2:
        raise BenchError(f"{repeats} timed runs give no spread", hint="time at least 2 runs")
    visual = visual.to(next(model.parameters()).device)
    with torch.inference_mode(), evaluating(model), _threads(threads) as used_threads:
        begin = time.perf_counter()
        for _ in range(warmup):
            _seconds(model, visual, beam_size, max_len, bos, eos)
        seconds: list[float] = []
        while len(seconds) < 2 or (len(seconds) < repeats and time.perf_counter() - begin < budget_s):
            seconds.append(_seconds(model, visual, beam_size, max_len, bos, eos))
    lower, median, upper = (float(value) for value in np.percentile(seconds, (25, 50, 75)))
    return {
        "latency_median": Quantity(median, unit="s", low=lower, high=upper),
        "latency_iqr": Quantity(upper - lower, unit="s"),
        "latency_throughput": Quantity(visual.batch_size / median, unit="images/s"),
        "latency_batch": Quantity(float(visual.batch_size), unit="images"),
        "latency_threads": Quantity(float(used_threads), unit="threads"),
        "latency_repeats": Quantity(float(len(seconds)), unit="runs"),
    }


def _seconds(model: Captioner, visual: Visual, beam_size: int, max_len: int, bos: int, eos: int) -> float:
    """Time one batch; a device's queue is drained before and after."""
    _synchronise(model)
    begin = time.perf_counter()
    beam_search(model, model.encode(visual), beam_size=beam_size, max_len=max_len, bos=bos, eos=eos)
    _synchronise(model)
    return time.perf_counter() - begin


def _synchronise(model: Captioner) -> None:
    device = next(model.parameters()).device
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@contextmanager
def _threads(wanted: int | None) -> Iterator[int]:
    """Pin torch's intra-op threads for a while; gives their number."""
    before = torch.get_num_threads()
    torch.set_num_threads(wanted or before)
    try:
        yield torch.get_num_threads()
    finally:
        torch.set_num_threads(before)
